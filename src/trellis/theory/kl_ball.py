"""The most advantage within a KL divergence, exactly, for all states at once.

Algorithm 1 and both trust regions (Eqs. 9, 11, 12) come down to one problem per state,

    maximize Σ_a π(a) A(a)   subject to   KL(p ‖ π) ≤ t,   π a distribution,

with p the old policy's row. Stationarity gives π(a) = λ p(a)/(ν − A(a)), with λ the multiplier of
the divergence and ν > A that of the normalization: one scalar per state. Where p(a) = 0 the
divergence does not see π(a); if the best action b is such a one, ν cannot fall below A(b), and
from there on the rest of the mass goes to b. With v(t) the optimal value, concave in t, v' = λ.

Method. Per state we solve for log x, x = ν − max A over the support of p, by Newton's method kept
inside a bracket that is known beforehand, to 1e-13 (relative to x, or to |log x| where that is
larger), and then step 1e-12 to the side where KL ≤ t, all states as one array. Divergences are
summed so that small ones keep their digits. The outer problems have one unknown: the common t of
the penalty, max_t Σ_s ρ(s) v_s(t) − C t, is the root of Σ_s ρ(s) λ_s(t) = C, and the λ of the mean
trust region is where the mean divergence is δ; both by Brent's method on the logarithm, to 1e-12.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import brentq

from trellis.theory.bounds import kl_divergence
from trellis.theory.mdp import Reals

TOLERANCE = 1e-12
# exp of this and of its negative are normal numbers, with room for products with probabilities.
_LOG_LIMIT = 690.0
# log 1e-34: a step with a smaller divergence does not change a float64 policy.
_LOG_SMALLEST_KL = -78.3
# log 1500: no pair of rows of normal numbers is further apart.
_LOG_LARGEST_KL = 7.3


class KLBallSolution(NamedTuple):
    """New rows and the multipliers λ of their divergences, one per state."""

    policy: Reals
    multipliers: Reals


class _StateProblems:
    """The constants of each state's problem, with advantages in units of their range.

    `gap` is max A − A over the support of p, `beyond` is how much the best action outside of the
    support exceeds that maximum, or 0. At least one of them reaches 1 where there is anything to
    gain at all.
    """

    def __init__(self, old: Reals, advantages: Reals):
        self.old = old
        support = old > 0.0
        best = np.where(support, advantages, -np.inf).max(axis=1)
        outside = np.where(support, -np.inf, advantages)
        gap = np.where(support, best[:, None] - advantages, 0.0)
        beyond = np.maximum(outside.max(axis=1) - best, 0.0)
        unit = np.maximum(gap.max(axis=1), beyond)
        self.unit = np.where(unit > 0.0, unit, 1.0)
        self.gap, self.beyond = gap / self.unit[:, None], beyond / self.unit
        self.best_outside = outside.argmax(axis=1)
        self.mean_gap = (old * self.gap).sum(axis=1)
        self.var = (old * (self.gap - self.mean_gap[:, None]) ** 2).sum(axis=1)
        self.varies = self.var > 0.0
        self.mass_at_best = (old * (support & (self.gap == 0.0))).sum(axis=1)
        self.most_gain = self.unit * (self.mean_gap + self.beyond)
        """max_a A(a) − E_p A, without cancellation."""
        self.last_log_x: Reals | None = None
        """Where the search for the last radius ended: a good start for the next one."""

    def kl_and_slope(self, x: Reals) -> tuple[Reals, Reals]:
        """Return KL(p ‖ π) at x, and its derivative by log x.

        With z = ν − E_p A and w = (A − E_p A)/z, so that E_p w = 0, the divergence
        E_p log(ν − A) + log E_p[1/(ν − A)] is log(1 + E_p[w²/(1 − w)]) + E_p[log(1 − w) + w], in
        which nothing of first order is left to cancel.
        """
        x, z = x[:, None], (x + self.mean_gap)[:, None]
        w = (self.mean_gap[:, None] - self.gap) / z
        rest = (x + self.gap) / z
        square = (self.old * w * w / rest).sum(axis=1)
        kl = np.log1p(square) + (self.old * _log_remainder(w, rest)).sum(axis=1)
        y = x / (x + self.gap)
        mean = (self.old * y).sum(axis=1)
        slope = -(self.old * (y - mean[:, None]) ** 2).sum(axis=1) / mean
        return kl, slope

    def policy(self, x: Reals, multipliers: Reals) -> Reals:
        """Return λ p/(x + gap), with the remaining mass on the best action outside of p."""
        new = multipliers[:, None] * self.old / (x[:, None] + self.gap)
        # What underflows to 0 would make the divergence infinite.
        new = np.maximum(new, np.finfo(float).tiny * (self.old > 0.0))
        left = np.maximum(1.0 - new.sum(axis=1), 0.0)
        crossed = np.flatnonzero((self.beyond > 0.0) & (x <= self.beyond))
        new[crossed, self.best_outside[crossed]] += left[crossed]
        return new / new.sum(axis=1, keepdims=True)


def within_kl(old: Reals, advantages: Reals, radius: float) -> KLBallSolution:
    """Return each state's best row with KL(old ‖ new) ≤ radius: the max-KL trust region, Eq. 11.

    A state where no action is better than what the row already has keeps its row, with λ = 0.
    """
    if radius <= 0.0:
        return KLBallSolution(old, np.full(len(old), np.inf))
    return _within_kl(_StateProblems(old, advantages), radius)


def at_multiplier(old: Reals, advantages: Reals, multiplier: float) -> KLBallSolution:
    """Return each state's best row for Σ_a π(a) A(a) − multiplier · KL(old ‖ new)."""
    problems = _StateProblems(old, advantages)
    multipliers = np.exp(
        np.clip(np.log(multiplier) - np.log(problems.unit), -_LOG_LIMIT, _LOG_LIMIT)
    )

    def excess(log_x: Reals) -> tuple[Reals, Reals]:
        x = np.exp(log_x)
        y = x[:, None] / (x[:, None] + problems.gap)
        first, second = (old * y).sum(axis=1), (old * y * y).sum(axis=1)
        return np.log(multipliers * first) - log_x, -second / first

    # mass_at_best/x ≤ Σ p/(x + gap) ≤ 1/x encloses the root of Σ λp/(x + gap) = 1.
    high = np.log(multipliers)
    low = high + np.log(problems.mass_at_best)
    x = np.exp(_decreasing_root(excess, low, high, high))
    new = problems.policy(np.maximum(x, problems.beyond), multipliers)
    return KLBallSolution(new, np.full(len(old), multiplier))


def penalized(old: Reals, advantages: Reals, weights: Reals, penalty: float) -> KLBallSolution:
    """Return argmax_π Σ_s w(s) Σ_a π(a|s) A(s, a) − penalty · max_s KL(old ‖ π): Algorithm 1.

    Every state gets the same divergence t, also those of weight 0, where it costs nothing. The
    penalty may forbid any step: from a deterministic row the gain is linear in t, and t = 0 is
    optimal when Σ_s w(s) max_a A(s, a) ≤ penalty. Without a penalty the answer is the greedy row.
    """
    if penalty <= 0.0:
        return KLBallSolution(greedy(old, advantages), np.zeros(len(old)))
    problems = _StateProblems(old, advantages)
    unchanged = KLBallSolution(old, np.full(len(old), np.inf))
    most = float(weights @ problems.most_gain)
    # v is concave and v(0) = 0, so t v'(t) ≤ v(t) ≤ its limit: beyond `top` the slope is below C.
    top = float(np.log(most) - np.log(penalty)) if most > 0.0 else -np.inf
    top = bottom = min(top, _LOG_LARGEST_KL)
    if top < _LOG_SMALLEST_KL:
        return unchanged

    @functools.cache
    def excess(log_radius: float) -> float:
        multipliers = _within_kl(problems, np.exp(log_radius)).multipliers
        return float(np.log(max(weights @ multipliers, np.finfo(float).tiny)) - np.log(penalty))

    while excess(bottom) < 0.0:
        bottom -= 6.0
        if bottom < _LOG_SMALLEST_KL:
            return unchanged
    root = top if bottom == top else _root(excess, bottom, min(bottom + 6.0, top))
    return _within_kl(problems, float(np.exp(root)))


def within_mean_kl(old: Reals, advantages: Reals, weights: Reals, radius: float) -> KLBallSolution:
    """Return argmax_π Σ_s w(s) Σ_a π(a|s) A(s, a) with mean KL(old ‖ π) over w ≤ radius: Eq. 12."""
    unchanged = KLBallSolution(old, np.full(len(old), np.inf))
    seen = weights > 0.0
    most_gain = float(_StateProblems(old, advantages).most_gain[seen].max())
    if radius <= 0.0 or most_gain <= 0.0:
        return unchanged
    shares = weights[seen] / weights.sum()

    @functools.cache
    def excess(log_multiplier: float) -> float:
        new = at_multiplier(old[seen], advantages[seen], np.exp(log_multiplier)).policy
        kl = shares @ kl_divergence(old[seen], new)
        return float(np.log(max(kl, np.finfo(float).tiny) / radius))

    low = high = float(np.log(most_gain))
    while excess(high) > 0.0:
        high += 2.0
    stride = 1.0
    while excess(low) < 0.0:
        if low <= -_LOG_LIMIT:  # the divergence cannot get that large: greedy but for rounding
            return at_multiplier(old, advantages, float(np.exp(low)))
        low, stride = max(low - stride, -_LOG_LIMIT), 2.0 * stride
    root = low if low == high else _root(excess, low, high)
    while excess(root) > 0.0:
        root += TOLERANCE
    return at_multiplier(old, advantages, float(np.exp(root)))


def greedy(old: Reals, advantages: Reals) -> Reals:
    """Return all mass on the best action of each state, or the old row where it is best already.

    Keeping the row makes policy iteration stop where ties or rounding would let it wander.
    """
    new = np.zeros_like(old)
    new[np.arange(len(old)), advantages.argmax(axis=1)] = 1.0
    stay = (old * advantages).sum(axis=1) >= advantages.max(axis=1)
    return np.where(stay[:, None], old, new)


def _within_kl(problems: _StateProblems, radius: float) -> KLBallSolution:
    x = np.maximum(_x_at_kl(problems, radius), problems.beyond)
    x = np.where(x > 0.0, x, 1.0)
    inside = 1.0 / (problems.old / (x[:, None] + problems.gap)).sum(axis=1)
    # Where mass goes outside of the support, ν stays put and KL = t is solved for λ in closed form.
    crossing = np.exp((problems.old * np.log(x[:, None] + problems.gap)).sum(axis=1) - radius)
    crossed = (problems.beyond > 0.0) & (x <= problems.beyond)
    multipliers = np.where(crossed, np.minimum(crossing, inside), inside)
    still = ~problems.varies & (problems.beyond == 0.0)
    new = np.where(still[:, None], problems.old, problems.policy(x, multipliers))
    return KLBallSolution(new, np.where(still, 0.0, multipliers * problems.unit))


def _x_at_kl(problems: _StateProblems, radius: float) -> Reals:
    """Return x at which each state's divergence is just within the radius; 0 where none varies."""
    var = np.where(problems.varies, problems.var, 1.0)
    # KL ≤ E[w²/(1 − w)] ≤ var/x² from above; from below keep only the best action in 1/(ν − A).
    high = 0.5 * np.log(var / radius)
    logs = np.log(problems.gap, out=np.zeros_like(problems.gap), where=problems.gap > 0.0)
    others = np.where(problems.varies, (problems.old * (problems.gap > 0.0)).sum(axis=1), 1.0)
    with np.errstate(over="ignore"):
        low = (np.log(problems.mass_at_best) + (problems.old * logs).sum(axis=1) - radius) / others
    low, high = np.clip(low, -_LOG_LIMIT, _LOG_LIMIT), np.clip(high, -_LOG_LIMIT, _LOG_LIMIT)

    def excess(log_x: Reals) -> tuple[Reals, Reals]:
        kl, slope = problems.kl_and_slope(np.exp(log_x))
        kl = np.where(problems.varies & (kl > 0.0), kl, radius)
        return np.log(kl / radius), np.where(problems.varies, slope / kl, -1.0)

    # For small t, KL ≈ var/(2x²).
    start = high - 0.5 * np.log(2.0) if problems.last_log_x is None else problems.last_log_x
    problems.last_log_x = log_x = _decreasing_root(excess, low, high, start)
    return np.where(
        problems.varies, np.exp(log_x + TOLERANCE * np.maximum(1.0, np.abs(log_x))), 0.0
    )


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return cast(float, brentq(function, low, high, xtol=TOLERANCE))


def _decreasing_root(
    function: Callable[[Reals], tuple[Reals, Reals]], low: Reals, high: Reals, start: Reals
) -> Reals:
    """Return roots of decreasing functions, elementwise, by Newton's method inside [low, high].

    `function` gives values and derivatives. A Newton step that leaves the bracket is replaced by
    its middle, so the method never does worse than bisection.
    """
    low, high = np.minimum(low, high), np.maximum(low, high)
    point = np.clip(start, low, high)
    for _ in range(200):
        value, slope = function(point)
        low, high = np.where(value > 0.0, point, low), np.where(value > 0.0, high, point)
        step = np.divide(value, slope, out=np.full_like(value, np.inf), where=slope < 0.0)
        newton = point - step
        inside = (newton >= low) & (newton <= high)
        following = np.where(inside, newton, 0.5 * (low + high))
        move, point = np.abs(following - point), following
        if (move <= 0.1 * TOLERANCE * np.maximum(1.0, np.abs(point))).all():
            break
    return point


def _log_remainder(w: Reals, rest: Reals) -> Reals:
    """Return log(1 − w) + w with rest = 1 − w, by its series near 0 where the sum would cancel."""
    near = np.abs(w) < 0.02
    u = np.where(near, w, 0.0)
    series = np.full_like(u, 1.0 / 10.0)
    for k in range(9, 1, -1):
        series *= u
        series += 1.0 / k
    return np.where(near, -u * u * series, np.log(rest) + w)
