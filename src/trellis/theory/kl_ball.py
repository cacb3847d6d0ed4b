"""Maximizes the expected advantage within a KL divergence exactly, for all states at once.

Algorithm 1 and both trust regions (Eqs. 9, 11, 12) reduce to one problem per state,

    maximize Σ_a π(a) A(a)   subject to   KL(p ‖ π) ≤ t,   π a distribution,

where p is the old policy in that state. Stationarity gives π(a) = λ p(a)/(ν − A(a)). λ is the
multiplier of the divergence and ν > A is that of the normalization, one scalar per state. If
p(a) = 0, the divergence does not depend on π(a). If the best action b has p(b) = 0, ν cannot be
less than A(b); when ν reaches A(b), the remaining mass goes to b. The optimal value v(t) is concave
in t, and v' = λ.

Method: for each state we solve for log x, where x is ν − max A over the support of p. Newton's
method, safeguarded by a bracket that is known in advance, solves to 1e-13 (relative to x, or to
|log x| if that is larger). Then x moves by 1e-12 to the side where KL ≤ t. All states are solved as
one array, and divergences are summed in a form that keeps the digits of small ones.

The outer problems have one unknown, which Brent's method finds on a logarithmic scale to 1e-12:

- The common t of the penalty, max_t Σ_s ρ(s) v_s(t) − C t, is the root of Σ_s ρ(s) λ_s(t) = C.
- The λ of the mean trust region is the one for which the mean divergence is δ.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import brentq

from trellis.theory.bounds import kl_divergence
from trellis.theory.mdp import Reals

TOLERANCE = 1e-12
"""Accuracy of the solutions."""
# exp(±690) are normal float64 numbers, with room for products with probabilities.
_LOG_LIMIT = 690.0
# log 1e-34: a step with a smaller divergence does not change a float64 policy.
_LOG_SMALLEST_KL = -78.3
# log 1500: the divergence of two rows of normal float64 numbers is never larger.
_LOG_LARGEST_KL = 7.3


class KLBallSolution(NamedTuple):
    """Optimal policy, and the multiplier of the divergence in each state."""

    policy: Reals
    """New policy, [s, a]."""
    multipliers: Reals
    """Multipliers λ[s] of the divergences."""


class _StateProblems:
    """Constants of each state's problem, with advantages in units of their range.

    `gap` is max A − A over the support of p. `beyond` is the amount by which the best action
    outside of the support exceeds that maximum, or 0. If any gain is possible, the larger of the
    two is 1.
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
        """Largest possible gain, max_a A(a) − E_p A, computed without cancellation."""
        self.last_log_x: Reals | None = None
        """Solution for the last radius, which is a good start for the next one."""

    def kl_and_slope(self, x: Reals) -> tuple[Reals, Reals]:
        """Return KL(p ‖ π) at x, and its derivative with respect to log x.

        With z = ν − E_p A and w = (A − E_p A)/z, so that E_p w = 0, the divergence

            E_p log(ν − A) + log E_p[1/(ν − A)] = log(1 + E_p[w²/(1 − w)]) + E_p[log(1 − w) + w]

        has no terms of first order on the right, so nothing cancels.
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
        """Return λ p/(x + gap), with the remaining mass on the best action outside the support."""
        new = multipliers[:, None] * self.old / (x[:, None] + self.gap)
        # A probability that underflows to 0 would make the divergence infinite.
        new = np.maximum(new, np.finfo(float).tiny * (self.old > 0.0))
        left = np.maximum(1.0 - new.sum(axis=1), 0.0)
        crossed = np.flatnonzero((self.beyond > 0.0) & (x <= self.beyond))
        new[crossed, self.best_outside[crossed]] += left[crossed]
        return new / new.sum(axis=1, keepdims=True)


def within_kl(old: Reals, advantages: Reals, radius: float) -> KLBallSolution:
    """Return the policy with the largest advantage subject to KL(old ‖ new) ≤ radius (Eq. 11).

    The constraint holds in every state. A state in which no action improves on the old policy
    keeps its probabilities, with λ = 0.

    Args:
        old: Old policy, [s, a].
        advantages: Advantages A[s, a].
        radius: Largest divergence of a state.

    Example:
        >>> within_kl(np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]]), 0.1).policy.round(3).tolist()
        [[0.287, 0.713]]
    """
    if radius <= 0.0:
        return KLBallSolution(old, np.full(len(old), np.inf))
    return _within_kl(_StateProblems(old, advantages), radius)


def at_multiplier(old: Reals, advantages: Reals, multiplier: float) -> KLBallSolution:
    """Return the policy that maximizes Σ_a π(a) A(a) − multiplier·KL(old ‖ new) in each state."""
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
    """Return argmax_π Σ_s w(s) Σ_a π(a|s) A(s, a) − penalty·max_s KL(old ‖ π) (Algorithm 1).

    Every state gets the same divergence t, including states of weight 0, where it costs nothing.
    The optimum may be t = 0: for a deterministic policy the gain is linear in t, and t = 0 is
    optimal if Σ_s w(s) max_a A(s, a) ≤ penalty. Without a penalty the result is the greedy policy.

    Args:
        old: Old policy, [s, a].
        advantages: Advantages A[s, a].
        weights: Weights w[s] of the states.
        penalty: Coefficient C of the divergence.
    """
    if penalty <= 0.0:
        return KLBallSolution(greedy(old, advantages), np.zeros(len(old)))
    problems = _StateProblems(old, advantages)
    unchanged = KLBallSolution(old, np.full(len(old), np.inf))
    most = float(weights @ problems.most_gain)
    # v is concave and v(0) = 0, so t·v'(t) ≤ v(t) ≤ most: beyond `top` the slope is less than C.
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
    """Return argmax_π Σ_s w(s) Σ_a π(a|s) A(s, a) subject to mean KL(old ‖ π) ≤ radius (Eq. 12).

    Args:
        old: Old policy, [s, a].
        advantages: Advantages A[s, a].
        weights: Weights w[s] of the states, in the objective and in the mean.
        radius: Largest mean divergence.
    """
    unchanged = KLBallSolution(old, np.full(len(old), np.inf))
    visited = weights > 0.0
    most_gain = float(_StateProblems(old, advantages).most_gain[visited].max())
    if radius <= 0.0 or most_gain <= 0.0:
        return unchanged
    shares = weights[visited] / weights.sum()

    @functools.cache
    def excess(log_multiplier: float) -> float:
        new = at_multiplier(old[visited], advantages[visited], np.exp(log_multiplier)).policy
        kl = shares @ kl_divergence(old[visited], new)
        return float(np.log(max(kl, np.finfo(float).tiny) / radius))

    low = high = float(np.log(most_gain))
    while excess(high) > 0.0:
        high += 2.0
    stride = 1.0
    while excess(low) < 0.0:
        if low <= -_LOG_LIMIT:  # no policy has that divergence: greedy up to rounding
            return at_multiplier(old, advantages, float(np.exp(low)))
        low, stride = max(low - stride, -_LOG_LIMIT), 2.0 * stride
    root = low if low == high else _root(excess, low, high)
    while excess(root) > 0.0:
        root += TOLERANCE
    return at_multiplier(old, advantages, float(np.exp(root)))


def greedy(old: Reals, advantages: Reals) -> Reals:
    """Return the greedy policy; states in which the old policy is already optimal keep it.

    Keeping it makes policy iteration stop. With ties or rounding errors it would otherwise switch
    between equally good actions.
    """
    new = np.zeros_like(old)
    new[np.arange(len(old)), advantages.argmax(axis=1)] = 1.0
    stay = (old * advantages).sum(axis=1) >= advantages.max(axis=1)
    return np.where(stay[:, None], old, new)


def _within_kl(problems: _StateProblems, radius: float) -> KLBallSolution:
    x = np.maximum(_x_at_kl(problems, radius), problems.beyond)
    x = np.where(x > 0.0, x, 1.0)
    inside = 1.0 / (problems.old / (x[:, None] + problems.gap)).sum(axis=1)
    # Where mass leaves the support, ν is fixed and KL = t has a closed-form solution for λ.
    crossing = np.exp((problems.old * np.log(x[:, None] + problems.gap)).sum(axis=1) - radius)
    crossed = (problems.beyond > 0.0) & (x <= problems.beyond)
    multipliers = np.where(crossed, np.minimum(crossing, inside), inside)
    still = ~problems.varies & (problems.beyond == 0.0)
    new = np.where(still[:, None], problems.old, problems.policy(x, multipliers))
    return KLBallSolution(new, np.where(still, 0.0, multipliers * problems.unit))


def _x_at_kl(problems: _StateProblems, radius: float) -> Reals:
    """Return x at which each state's divergence is just within the radius; 0 if gaps are equal."""
    var = np.where(problems.varies, problems.var, 1.0)
    # Upper end: KL ≤ E[w²/(1 − w)] ≤ var/x². Lower end: only the best action in 1/(ν − A).
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

    `function` returns values and derivatives. A Newton step that leaves the bracket is replaced by
    the middle of the bracket, as in bisection.
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
    """Return log(1 − w) + w, where rest is 1 − w; near 0 by its series to avoid cancellation."""
    near = np.abs(w) < 0.02
    u = np.where(near, w, 0.0)
    series = np.full_like(u, 1.0 / 10.0)
    for k in range(9, 1, -1):
        series *= u
        series += 1.0 / k
    return np.where(near, -u * u * series, np.log(rest) + w)
