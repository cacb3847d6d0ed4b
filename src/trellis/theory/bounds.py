"""Computes the bounds on the difference between η and L (Section 3 and Appendix A).

With ε = max |A_π(s, a)| and α = max_s TV(π(·|s), π̃(·|s)), Theorem 1 is

    η(π̃) ≥ L_π(π̃) − 4εγ/(1 − γ)² α²

and TV² ≤ KL gives its KL form, the minorizer of Algorithm 1. The proof in Appendix A also contains
stronger bounds, which this module has too, with the coupling that they are based on:

    |η(π̃) − L_π(π̃)| ≤ 4α²γε / ((1 − γ)(1 − γ(1 − α)))        per time step 4α(1 − (1 − α)ᵗ)ε
                                                               per state     2αε

Functions of two policies expect the old one as `PolicyEvaluation` and the new one as an array.
Functions named `…_bound` return lower bounds of η(π̃) (`advantage_bound` bounds |Ā|); functions
named `…_error` return bounds on |η(π̃) − L_π(π̃)|.
"""

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory.mdp import PolicyEvaluation, Reals


def total_variation(p: ArrayLike, q: ArrayLike) -> Reals:
    """Return the total variation distance ½ Σ_a |p(a) − q(a)| for each row.

    Args:
        p: Distributions along the last axis.
        q: Distributions along the last axis.

    Example:
        >>> float(total_variation([0.5, 0.5], [0.75, 0.25]))
        0.25
    """
    return 0.5 * np.abs(np.asarray(p, np.float64) - np.asarray(q, np.float64)).sum(axis=-1)


def kl_divergence(p: ArrayLike, q: ArrayLike) -> Reals:
    """Return KL(p ‖ q) = Σ_a p log(p/q) for each row; infinite if q is 0 where p is not.

    The sum is computed as Σ_a p (e − log(1 + e)) with e = q/p − 1, which is the same for rows that
    sum to 1. No term is negative, so small divergences keep their leading digits.

    Args:
        p: Distributions along the last axis.
        q: Distributions along the last axis.

    Example:
        >>> round(float(kl_divergence([0.5, 0.5], [0.8, 0.2])), 4)
        0.2231
    """
    p, q = np.broadcast_arrays(np.asarray(p, np.float64), np.asarray(q, np.float64))
    inside = p > 0.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        e = (q - p) / p
        # Far apart, plain logarithms are exact enough and do not overflow where p is denormal.
        log_ratio = np.where(np.abs(e) < 0.5, np.log1p(e), np.log(q) - np.log(p))
        terms = np.where(inside, (q - p) - p * log_ratio, q)
    return np.maximum(terms, 0.0).sum(axis=-1)


def max_total_variation(old: ArrayLike, new: ArrayLike) -> float:
    """Return α = max_s TV(old(·|s), new(·|s)), the largest total variation (Eq. 7).

    Args:
        old: Old policy, [s, a].
        new: New policy, [s, a].

    Example:
        >>> max_total_variation([[0.5, 0.5], [1.0, 0.0]], [[0.75, 0.25], [0.5, 0.5]])
        0.5
    """
    return float(total_variation(old, new).max())


def max_kl(old: ArrayLike, new: ArrayLike) -> float:
    """Return max_s KL(old(·|s) ‖ new(·|s)), the largest KL divergence of any state.

    Args:
        old: Old policy, [s, a].
        new: New policy, [s, a].

    Example:
        >>> round(max_kl([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.8, 0.2]]), 4)
        0.2231
    """
    return float(kl_divergence(old, new).max())


def mean_kl(weights: ArrayLike, old: ArrayLike, new: ArrayLike) -> float:
    """Return E_{s~ρ} KL(old(·|s) ‖ new(·|s)), the mean KL divergence (Eq. 12).

    Args:
        weights: Weights of the states, for example ρ_old; they are normalized to ρ.
        old: Old policy, [s, a].
        new: New policy, [s, a].

    Example:
        >>> round(mean_kl([1.0, 3.0], [[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.8, 0.2]]), 4)
        0.1674
    """
    weights = np.asarray(weights, np.float64)
    kl = kl_divergence(old, new)
    visited = weights > 0.0
    return float(weights[visited] @ kl[visited] / weights.sum())


def penalty_coefficient(epsilon: float, gamma: float) -> float:
    """Return C = 4εγ/(1 − γ)² of Eq. 9, which is also the factor of α² in Theorem 1.

    Args:
        epsilon: ε = max |A_π(s, a)|, as in `PolicyEvaluation.max_advantage`.
        gamma: Discount factor γ.

    Example:
        >>> penalty_coefficient(epsilon=1.0, gamma=0.5)
        8.0
    """
    return 4.0 * epsilon * gamma / (1.0 - gamma) ** 2


def theorem1_error(epsilon: float, gamma: float, alpha: float) -> float:
    """Return the bound of Theorem 1 on |η − L|, 4εγα²/(1 − γ)²."""
    return penalty_coefficient(epsilon, gamma) * alpha**2


def coupling_error(epsilon: float, gamma: float, alpha: float) -> float:
    """Return Appendix A's bound on |η − L| before its last step: 4α²γε / ((1 − γ)(1 − γ(1 − α))).

    It never exceeds the bound of Theorem 1. For γ → 1 it grows like 1/(1 − γ), and the bound of
    Theorem 1 grows like 1/(1 − γ)².
    """
    return 4.0 * alpha**2 * gamma * epsilon / ((1.0 - gamma) * (1.0 - gamma * (1.0 - alpha)))


def kl_error(epsilon: float, gamma: float, largest_kl: float) -> float:
    """Return the KL form of the bound on |η − L|, C·max KL; 0 if C is 0, even if KL is infinite."""
    penalty = penalty_coefficient(epsilon, gamma)
    return penalty * largest_kl if penalty > 0.0 else 0.0


def theorem1_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return the lower bound of Theorem 1 on η(new): L(new) − 4εγα²/(1 − γ)².

    Args:
        old: Evaluation of the old policy, which defines L and ε.
        new: New policy, [s, a]; α is its largest total variation from the old one.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> old, new = mdp.evaluate(mdp.uniform_policy()), [[0.4, 0.6]] * 3
        >>> theorem1_bound(old, new) <= coupling_bound(old, new) <= mdp.performance(new)
        True
    """
    alpha = max_total_variation(old.policy, new)
    return old.surrogate(new) - theorem1_error(old.max_advantage, old.mdp.gamma, alpha)


def coupling_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return Appendix A's lower bound on η(new): L(new) − 4α²γε/((1 − γ)(1 − γ(1 − α))).

    It is at least as large as `theorem1_bound`.

    Args:
        old: Evaluation of the old policy, which defines L and ε.
        new: New policy, [s, a]; α is its largest total variation from the old one.
    """
    alpha = max_total_variation(old.policy, new)
    return old.surrogate(new) - coupling_error(old.max_advantage, old.mdp.gamma, alpha)


def kl_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return the lower bound of Eq. 9 on η(new): L(new) − C·max KL, Algorithm 1's minorizer M.

    Args:
        old: Evaluation of the old policy, which defines L and C.
        new: New policy, [s, a].

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> old = mdp.evaluate(mdp.uniform_policy())
        >>> kl_bound(old, old.policy) == old.performance
        True
    """
    largest_kl = max_kl(old.policy, new)
    return old.surrogate(new) - kl_error(old.max_advantage, old.mdp.gamma, largest_kl)


def mixture_error(old: PolicyEvaluation, target: ArrayLike, step: float) -> float:
    """Return the bound of Eq. 6 on |η − L| of a mixture, 2εγ/(1 − γ)² α².

    Here ε is max_s |E_{a~target} A_π(s, a)| and α is the step.

    Args:
        old: Evaluation of the old policy.
        target: Policy that the old one is mixed with, [s, a].
        step: α, the weight of the target.
    """
    epsilon = float(np.abs(old.expected_advantage(target)).max())
    return 0.5 * penalty_coefficient(epsilon, old.mdp.gamma) * step**2


def mixture_bound(old: PolicyEvaluation, target: ArrayLike, step: float) -> float:
    """Return Kakade and Langford's lower bound on η((1 − α) old + α target), α the step (Eq. 6)."""
    # L is affine in the new policy, so the gain of the mixture is α times that of the target.
    surrogate = old.performance + step * old.surrogate_gain(target)
    return surrogate - mixture_error(old, target, step)


def advantage_bound(old: PolicyEvaluation, new: ArrayLike) -> float:
    """Return the bound of Lemma 2 on |Ā(s)| in every state, 2αε."""
    return 2.0 * max_total_variation(old.policy, new) * old.max_advantage


def advantage_gaps(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return |E_{s_t~new} Ā(s_t) − E_{s_t~old} Ā(s_t)|, t < horizon, which Lemma 3 bounds."""
    expected = old.expected_advantage(new)
    distributions = (old.mdp.state_distributions(policy, horizon) for policy in (new, old.policy))
    after, before = distributions
    return np.abs((after - before) @ expected)


def advantage_gap_bounds(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return the bound of Lemma 3, 4α(1 − (1 − α)ᵗ)ε, for each t < horizon.

    Departs from Appendix A: its middle term, 2α max_s Ā(s), is left out, because it is wrong as
    printed (see `advantage_gap_middle_bounds`).
    """
    alpha = max_total_variation(old.policy, new)
    return 4.0 * alpha * _disagreement(alpha, horizon) * old.max_advantage


def advantage_gap_middle_bounds(old: PolicyEvaluation, new: ArrayLike, horizon: int) -> Reals:
    """Return the correct middle term of Lemma 3: 2(1 − (1 − α)ᵗ) max_s |Ā(s)|, t < horizon.

    The paper prints 2α max_s Ā(s) there. At t = 0 that exceeds the right-hand side, which is 0. If
    Ā is negative in every state, it is below the left-hand side. The steps of the proof give this
    term, and with Lemma 2 they give the right-hand side.
    """
    alpha = max_total_variation(old.policy, new)
    largest = float(np.abs(old.expected_advantage(new)).max())
    return 2.0 * _disagreement(alpha, horizon) * largest


def _disagreement(alpha: float, horizon: int) -> Reals:
    """Return 1 − (1 − α)ᵗ, the largest probability that α-coupled policies differ before t."""
    return 1.0 - (1.0 - alpha) ** np.arange(horizon, dtype=np.float64)


def maximal_coupling(old: ArrayLike, new: ArrayLike) -> Reals:
    """Return the joint distribution [s, a, ã] of two policies that maximizes their agreement.

    The common mass min(old, new) is on the diagonal, and the remainders are coupled independently.
    So P(a ≠ ã | s) = TV(old(·|s), new(·|s)) (Levin, Peres and Wilmer, Prop. 4.7).

    Args:
        old: Old policy, [s, a].
        new: New policy, [s, a].

    Example:
        >>> maximal_coupling([[0.5, 0.5]], [[0.75, 0.25]]).tolist()
        [[[0.5, 0.0], [0.25, 0.25]]]
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
