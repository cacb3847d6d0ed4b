"""How far L may be from η: the bounds of Section 3 and Appendix A, each as a number.

With ε = max |A_π(s, a)| and α = max_s TV(π(·|s), π̃(·|s)), Theorem 1 is

    η(π̃) ≥ L_π(π̃) − 4εγ/(1 − γ)² α²

and TV² ≤ KL gives its KL form, the minorizer of Algorithm 1. On the way there Appendix A proves
more than it keeps: |η(π̃) − L_π(π̃)| ≤ 4α²γε / ((1 − γ)(1 − γ(1 − α))), per time step
4α(1 − (1 − α)ᵗ)ε, and per state 2αε. All of these are here, with the coupling that they rest on.
Functions that need both policies take the old one's `PolicyEvaluation` and the new one's array;
those named `…_bound` are lower bounds of η(π̃), those named `…_error` bound |η(π̃) − L_π(π̃)|.
"""

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory.mdp import PolicyEvaluation, Reals


def total_variation(p: ArrayLike, q: ArrayLike) -> Reals:
    """Return ½ Σ_a |p(a) − q(a)| for each row."""
    return 0.5 * np.abs(np.asarray(p, np.float64) - np.asarray(q, np.float64)).sum(axis=-1)


def kl_divergence(p: ArrayLike, q: ArrayLike) -> Reals:
    """Return KL(p ‖ q) = Σ_a p log(p/q) for each row; infinite where q is 0 and p is not.

    Summed as p (e − log(1 + e)) with e = q/p − 1, which is the same for rows that sum to 1. No
    term is negative, so a tiny divergence keeps its leading digits instead of cancelling.
    """
    p, q = np.broadcast_arrays(np.asarray(p, np.float64), np.asarray(q, np.float64))
    inside = p > 0.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        e = (q - p) / p
        # Far apart the plain logarithms are as good, and do not overflow where p is denormal.
        log_ratio = np.where(np.abs(e) < 0.5, np.log1p(e), np.log(q) - np.log(p))
        terms = np.where(inside, (q - p) - p * log_ratio, q)
    return np.maximum(terms, 0.0).sum(axis=-1)


def max_total_variation(old: ArrayLike, new: ArrayLike) -> float:
    """Return α = max_s TV(old(·|s), new(·|s)), Eq. 7."""
    return float(total_variation(old, new).max())


def max_kl(old: ArrayLike, new: ArrayLike) -> float:
    """Return max_s KL(old(·|s) ‖ new(·|s))."""
    return float(kl_divergence(old, new).max())


def mean_kl(weights: ArrayLike, old: ArrayLike, new: ArrayLike) -> float:
    """Return E_{s~ρ} KL(old(·|s) ‖ new(·|s)) with ρ the normalized weights."""
    weights = np.asarray(weights, np.float64)
    kl = kl_divergence(old, new)
    seen = weights > 0.0
    return float(weights[seen] @ kl[seen] / weights.sum())


def penalty_coefficient(epsilon: float, gamma: float) -> float:
    """Return C = 4εγ/(1 − γ)² of Eq. 9, which is also the factor of α² in Theorem 1."""
    return 4.0 * epsilon * gamma / (1.0 - gamma) ** 2


def theorem1_error(epsilon: float, gamma: float, alpha: float) -> float:
    """Return Theorem 1's bound on |η − L|: 4εγα²/(1 − γ)²."""
    return penalty_coefficient(epsilon, gamma) * alpha**2


def coupling_error(epsilon: float, gamma: float, alpha: float) -> float:
    """Return Appendix A's bound before its last step: 4α²γε / ((1 − γ)(1 − γ(1 − α))).

    It is never above Theorem 1's. As γ → 1 it grows as 1/(1 − γ), Theorem 1's as 1/(1 − γ)².
    """
    return 4.0 * alpha**2 * gamma * epsilon / ((1.0 - gamma) * (1.0 - gamma * (1.0 - alpha)))


def kl_error(epsilon: float, gamma: float, largest_kl: float) -> float:
    """Return C · max KL, and 0 where C is 0, however large the divergence."""
    penalty = penalty_coefficient(epsilon, gamma)
    return penalty * largest_kl if penalty > 0.0 else 0.0


def theorem1_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return L − 4εγα²/(1 − γ)² ≤ η(new), with α the largest total variation."""
    alpha = max_total_variation(old.policy, new)
    return old.surrogate(new) - theorem1_error(old.max_advantage, old.mdp.gamma, alpha)


def coupling_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return L − 4α²γε/((1 − γ)(1 − γ(1 − α))) ≤ η(new)."""
    alpha = max_total_variation(old.policy, new)
    return old.surrogate(new) - coupling_error(old.max_advantage, old.mdp.gamma, alpha)


def kl_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return L − C max KL ≤ η(new), Eq. 9: the minorizer M of Algorithm 1."""
    largest_kl = max_kl(old.policy, new)
    return old.surrogate(new) - kl_error(old.max_advantage, old.mdp.gamma, largest_kl)


def mixture_error(old: PolicyEvaluation, target: ArrayLike, step: float) -> float:
    """Return 2εγ/(1 − γ)² α² with ε = max_s |E_{a~target} A_π(s, a)| and α the step, Eq. 6."""
    epsilon = float(np.abs(old.expected_advantage(target)).max())
    return 0.5 * penalty_coefficient(epsilon, old.mdp.gamma) * step**2


def mixture_bound(old: PolicyEvaluation, target: ArrayLike, step: float) -> float:
    """Return Kakade and Langford's bound (Eq. 6) of η((1 − α) old + α target), α the step."""
    # L is affine in the new policy: the mixture's gain is α times the target's.
    surrogate = old.performance + step * old.surrogate_gain(target)
    return surrogate - mixture_error(old, target, step)


def advantage_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return 2αε, which no |Ā(s)| exceeds: Lemma 2."""
    return 2.0 * max_total_variation(old.policy, new) * old.max_advantage


def advantage_gaps(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return what Lemma 3 bounds: |E_{s_t~new} Ā(s_t) − E_{s_t~old} Ā(s_t)|, t < horizon."""
    expected = old.expected_advantage(new)
    distributions = (old.mdp.state_distributions(policy, horizon) for policy in (new, old.policy))
    after, before = distributions
    return np.abs((after - before) @ expected)


def advantage_gap_bounds(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return 4α(1 − (1 − α)ᵗ)ε for each t < horizon: Lemma 3.

    Departs from Appendix A: its middle term, 2α max_s Ā(s), is left out, for it belongs to another
    statement (see `advantage_gap_middle_bounds`).
    """
    alpha = max_total_variation(old.policy, new)
    return 4.0 * alpha * _disagreement(alpha, horizon) * old.max_advantage


def advantage_gap_middle_bounds(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return what Lemma 3's middle term should be: 2(1 − (1 − α)ᵗ) max_s |Ā(s)|, t < horizon.

    The paper prints 2α max_s Ā(s) there. That exceeds the right-hand side, which is 0, at t = 0,
    and falls below the left-hand side where Ā is negative in every state. The proof's own steps
    give this term, and with Lemma 2 the right-hand side.
    """
    alpha = max_total_variation(old.policy, new)
    largest = float(np.abs(old.expected_advantage(new)).max())
    return 2.0 * _disagreement(alpha, horizon) * largest


def _disagreement(alpha: float, horizon: int) -> Reals:
    """Return 1 − (1 − α)ᵗ, the largest chance that α-coupled policies differed before step t."""
    return 1.0 - (1.0 - alpha) ** np.arange(horizon, dtype=np.float64)


def maximal_coupling(old: ArrayLike, new: ArrayLike) -> Reals:
    """Return the joint distribution [s, a, ã] of old and new that agrees as often as possible.

    The mass that both share, min(old, new), lies on the diagonal; what is left of each is joined
    independently. So P(a ≠ ã | s) = TV(old(·|s), new(·|s)): Levin, Peres and Wilmer, Prop. 4.7.
    """
    old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
    shared = np.minimum(old, new)
    left, right = old - shared, new - shared
    apart = left.sum(axis=1)
    scale = np.divide(1.0, apart, out=np.zeros_like(apart), where=apart > 0.0)
    joint = left[:, :, None] * right[:, None, :] * scale[:, None, None]
    actions = np.arange(old.shape[1])
    joint[:, actions, actions] += shared
    return joint
