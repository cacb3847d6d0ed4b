"""Implements Algorithm 1, its trust-region forms, and exact policy iteration (Sec. 3).

Algorithm 1 sets π_{i+1} = argmax_π M_i(π), with the minorizer

    M_i(π) = L_{π_i}(π) − C max_s KL(π_i ‖ π),   C = 4εγ/(1 − γ)²

Because M_i ≤ η and M_i(π_i) = η(π_i), the performance rises at least as much as M_i (Eq. 10). The
trust-region forms maximize L subject to max KL ≤ δ (Eq. 11) or mean KL ≤ δ (Eq. 12) and have no
such guarantee. Without a constraint the step is exact policy iteration. A step is a function from a
`PolicyEvaluation` to a new policy, `iterate` runs any of them, and a `Certificate` describes each
step. The module `kl_ball` explains how the maxima are found and how accurate they are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory import bounds, kl_ball
from trellis.theory.mdp import FiniteMDP, PolicyEvaluation, Reals

PolicyUpdate = Callable[[PolicyEvaluation], Reals]
"""A step: a function from the evaluation of a policy to the next policy."""


@dataclass(frozen=True)
class Certificate:
    """Guaranteed and actual gain of a step from an old to a new policy."""

    before: float
    """Performance before the step, η(old)."""
    after: float
    """Performance after the step, η(new)."""
    surrogate_gain: float
    """Gain of the surrogate, L_old(new) − η(old)."""
    epsilon: float
    """Largest absolute advantage, ε = max |A_old|."""
    gamma: float
    """Discount factor of the MDP."""
    max_total_variation: float
    """Largest total variation, α = max_s TV(old, new)."""
    max_kl: float
    """Largest divergence, max_s KL(old ‖ new); infinite if the new policy drops an action."""
    mean_kl: float
    """Mean divergence, E_{s~ρ_old} KL(old ‖ new)."""

    @property
    def gain(self) -> float:
        """Actual gain, η(new) − η(old)."""
        return self.after - self.before

    @property
    def minorizer_gain(self) -> float:
        """Gain that the KL form of Theorem 1 guarantees (Eq. 9), M(new) − M(old)."""
        return self.surrogate_gain - bounds.kl_error(self.epsilon, self.gamma, self.max_kl)

    @property
    def theorem1_gain(self) -> float:
        """Gain that Theorem 1 guarantees."""
        alpha = self.max_total_variation
        return self.surrogate_gain - bounds.theorem1_error(self.epsilon, self.gamma, alpha)

    @property
    def coupling_gain(self) -> float:
        """Gain that Appendix A guarantees before its last step; at least that of Theorem 1."""
        alpha = self.max_total_variation
        return self.surrogate_gain - bounds.coupling_error(self.epsilon, self.gamma, alpha)


@dataclass(frozen=True, eq=False)
class Iteration:
    """One iteration of a method: the new policy and the certificate of the step."""

    index: int
    """Index of the iteration, from 0."""
    new: PolicyEvaluation
    """Evaluation of the new policy."""
    certificate: Certificate
    """Guaranteed and actual gain of the step."""


def certify(old: PolicyEvaluation, new: PolicyEvaluation) -> Certificate:
    """Return the certificate of the step between two evaluated policies.

    Args:
        old: Evaluation of the policy before the step.
        new: Evaluation of the policy after the step.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> old, new = (mdp.evaluate([[1 - p, p]] * 3) for p in (0.5, 0.6))
        >>> round(certify(old, new).gain, 3)
        1.07
    """
    return Certificate(
        before=old.performance,
        after=new.performance,
        surrogate_gain=old.surrogate_gain(new.policy),
        epsilon=old.max_advantage,
        gamma=old.mdp.gamma,
        max_total_variation=bounds.max_total_variation(old.policy, new.policy),
        max_kl=bounds.max_kl(old.policy, new.policy),
        mean_kl=bounds.mean_kl(old.visitation, old.policy, new.policy),
    )


def iterate(
    mdp: FiniteMDP, policy: ArrayLike, step: PolicyUpdate, iterations: int
) -> Iterator[Iteration]:
    """Run a method for a number of iterations and yield each iteration.

    Args:
        mdp: The MDP.
        policy: First policy, [s, a].
        step: Function from the evaluation of a policy to the next policy, such as `algorithm1`.
        iterations: Number of iterations.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> steps = iterate(mdp, mdp.uniform_policy(), policy_iteration, iterations=2)
        >>> [round(step.certificate.after, 2) for step in steps]
        [8.11, 8.11]
    """
    old = mdp.evaluate(policy)
    for index in range(iterations):
        new = mdp.evaluate(step(old))
        yield Iteration(index, new, certify(old, new))
        old = new


def algorithm1(old: PolicyEvaluation) -> Reals:
    """Return the next policy of Algorithm 1, argmax_π L(π) − C max KL(old ‖ π).

    C is the paper's 4εγ/(1 − γ)². The performance never decreases. The function is a step for
    `iterate`.

    Args:
        old: Evaluation of the old policy.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> steps = iterate(mdp, mdp.uniform_policy(), algorithm1, iterations=3)
        >>> [round(step.certificate.after, 3) for step in steps]
        [2.67, 2.757, 2.844]
    """
    penalty = bounds.penalty_coefficient(old.max_advantage, old.mdp.gamma)
    return kl_ball.penalized(old.policy, old.advantages, old.visitation, penalty).policy


def max_kl_trust_region(max_kl: float) -> PolicyUpdate:
    """Return the step argmax_π L(π) subject to KL(old ‖ π) ≤ max_kl in every state (Eq. 11).

    Args:
        max_kl: δ, the radius of the trust region; > 0.

    Returns:
        A step for `iterate`.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> steps = iterate(mdp, mdp.uniform_policy(), max_kl_trust_region(0.1), iterations=3)
        >>> [round(step.certificate.after, 2) for step in steps]
        [4.96, 6.87, 7.87]
    """
    _check_radius("max_kl", max_kl)
    return lambda old: kl_ball.within_kl(old.policy, old.advantages, max_kl).policy


def mean_kl_trust_region(mean_kl: float) -> PolicyUpdate:
    """Return the step argmax_π L(π) subject to E_{s~ρ_old} KL(old ‖ π) ≤ mean_kl (Eq. 12).

    This is the exact form of the step that TRPO approximates.

    Args:
        mean_kl: δ, the radius of the trust region; > 0.

    Returns:
        A step for `iterate`.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> steps = iterate(mdp, mdp.uniform_policy(), mean_kl_trust_region(0.1), iterations=3)
        >>> [round(step.certificate.after, 2) for step in steps]
        [5.18, 6.97, 7.88]
    """
    _check_radius("mean_kl", mean_kl)
    return lambda old: (
        kl_ball.within_mean_kl(old.policy, old.advantages, old.visitation, mean_kl).policy
    )


def policy_iteration(old: PolicyEvaluation) -> Reals:
    """Return the next policy of exact policy iteration, argmax_π L(π); a step for `iterate`."""
    return kl_ball.greedy(old.policy, old.advantages)


def optimal_values(mdp: FiniteMDP, *, tolerance: float = 1e-12) -> Reals:
    """Return the optimal values V*[s] by value iteration.

    Args:
        mdp: The MDP.
        tolerance: Largest error of the result, unless rounding errors are larger.

    Example:
        >>> from trellis.theory import chain
        >>> optimal_values(chain(3)).round(2).tolist()
        [8.11, 9.0, 10.0]
    """
    values = np.zeros(mdp.num_states)
    floor = 4.0 * np.finfo(float).eps
    while True:
        new = mdp.lookahead(values).max(axis=1)
        change = float(np.abs(new - values).max())
        values = new
        # ‖V* − v‖ ≤ γ/(1 − γ) ‖v − v_before‖.
        goal = tolerance * (1.0 - mdp.gamma) / max(mdp.gamma, tolerance)
        if change <= max(goal, floor * float(np.abs(values).max())):
            return values


def optimal_performance(mdp: FiniteMDP, *, tolerance: float = 1e-12) -> float:
    """Return the optimal performance max_π η(π) = Σ_s ρ₀(s) V*(s).

    Args:
        mdp: The MDP.
        tolerance: Largest error of V*, unless rounding errors are larger.

    Example:
        >>> from trellis.theory import chain
        >>> round(optimal_performance(chain(3)), 2)
        8.11
    """
    return float(mdp.rho0 @ optimal_values(mdp, tolerance=tolerance))


def _check_radius(name: str, radius: float) -> None:
    if not radius > 0.0:
        raise ValueError(f"{name} must be > 0, got {radius}")
