"""Algorithm 1, its trust-region forms, and exact policy iteration, each step with its certificate.

Algorithm 1 takes π_{i+1} = argmax_π M_i(π), with the minorizer M_i(π) = L_{π_i}(π) −
C max_s KL(π_i ‖ π) and C = 4εγ/(1 − γ)². As M_i ≤ η and M_i(π_i) = η(π_i), the performance rises
at least as much as M_i does (Eq. 10). The trust-region forms maximize L with max KL ≤ δ (Eq. 11)
or mean KL ≤ δ (Eq. 12) and promise nothing; without any constraint the step is exact policy
iteration. A step is a function from a `PolicyEvaluation` to a new policy, so the methods are a
table, and `iterate` runs any of them. How the maxima are found, and how exactly, is in `kl_ball`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory import bounds, kl_ball
from trellis.theory.mdp import FiniteMDP, PolicyEvaluation, Reals

PolicyUpdate = Callable[[PolicyEvaluation], Reals]


@dataclass(frozen=True)
class Certificate:
    """What a step from old to new promised, and what it gave."""

    before: float
    """η(old)."""
    after: float
    """η(new)."""
    surrogate_gain: float
    """L_old(new) − η(old)."""
    epsilon: float
    """ε = max |A_old|."""
    gamma: float
    """The MDP's discount."""
    max_total_variation: float
    """α = max_s TV(old, new)."""
    max_kl: float
    """max_s KL(old ‖ new), infinite where the new policy drops an action."""
    mean_kl: float
    """The mean of KL(old ‖ new) over ρ_old."""

    @property
    def gain(self) -> float:
        """η(new) − η(old)."""
        return self.after - self.before

    @property
    def minorizer_gain(self) -> float:
        """M(new) − M(old): what the KL form (Eq. 9) promises for the gain."""
        return self.surrogate_gain - bounds.kl_error(self.epsilon, self.gamma, self.max_kl)

    @property
    def theorem1_gain(self) -> float:
        """What Theorem 1 promises for the gain."""
        alpha = self.max_total_variation
        return self.surrogate_gain - bounds.theorem1_error(self.epsilon, self.gamma, alpha)

    @property
    def coupling_gain(self) -> float:
        """What Appendix A promises before it simplifies; never less than Theorem 1."""
        alpha = self.max_total_variation
        return self.surrogate_gain - bounds.coupling_error(self.epsilon, self.gamma, alpha)


@dataclass(frozen=True, eq=False)
class Iteration:
    """One step of a method: where it arrived, and with what certificate."""

    index: int
    new: PolicyEvaluation
    certificate: Certificate


def certify(old: PolicyEvaluation, new: PolicyEvaluation) -> Certificate:
    """Return the certificate of a step between two evaluated policies."""
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
    """Run a method for so many iterations and yield each."""
    old = mdp.evaluate(policy)
    for index in range(iterations):
        new = mdp.evaluate(step(old))
        yield Iteration(index, new, certify(old, new))
        old = new


def algorithm1(old: PolicyEvaluation) -> Reals:
    """Return argmax_π L(π) − C max KL(old ‖ π): Algorithm 1's step, with the paper's C."""
    penalty = bounds.penalty_coefficient(old.max_advantage, old.mdp.gamma)
    return kl_ball.penalized(old.policy, old.advantages, old.visitation, penalty).policy


def max_kl_trust_region(max_kl: float) -> PolicyUpdate:
    """Return the step argmax_π L(π) with KL(old ‖ π) ≤ max_kl in every state: δ of Eq. 11."""
    _check_radius("max_kl", max_kl)
    return lambda old: kl_ball.within_kl(old.policy, old.advantages, max_kl).policy


def mean_kl_trust_region(mean_kl: float) -> PolicyUpdate:
    """Return the step argmax_π L(π) with E_{s~ρ_old} KL(old ‖ π) ≤ mean_kl: δ of Eq. 12."""
    _check_radius("mean_kl", mean_kl)
    return lambda old: (
        kl_ball.within_mean_kl(old.policy, old.advantages, old.visitation, mean_kl).policy
    )


def policy_iteration(old: PolicyEvaluation) -> Reals:
    """Return argmax_π L(π) in every state: the step of exact policy iteration."""
    return kl_ball.greedy(old.policy, old.advantages)


def optimal_values(mdp: FiniteMDP, *, tolerance: float = 1e-12) -> Reals:
    """Return V* by value iteration, to the tolerance (or to rounding, where that is coarser)."""
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
    """Return max_π η(π) = Σ_s ρ₀(s) V*(s)."""
    return float(mdp.rho0 @ optimal_values(mdp, tolerance=tolerance))


def _check_radius(name: str, radius: float) -> None:
    if not radius > 0.0:
        raise ValueError(f"{name} must be > 0, got {radius}")
