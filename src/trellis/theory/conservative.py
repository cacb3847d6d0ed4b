"""Conservative policy iteration (Kakade and Langford, 2002), as Section 2 states it.

The new policy is the mixture (1 − α) old + α target, with target = argmax L_old, which is greedy in
every state (Eq. 5). Its bound, Eq. 6, is a parabola in α,

    η(new) − η(old) ≥ α 𝔸 − 2εγ/(1 − γ)² α²,   𝔸 = L_old(target) − η(old),
                                               ε = max_s |E_{a~target} A_old(s, a)|,

whose largest value on [0, 1] is at α = min(1, 𝔸(1 − γ)²/(4εγ)); with that step η never falls.
"""

from dataclasses import dataclass

import numpy as np

from trellis.theory import bounds, kl_ball
from trellis.theory.mdp import PolicyEvaluation, Reals


@dataclass(frozen=True, eq=False)
class Mixture:
    """One step of conservative policy iteration, before it is taken."""

    target: Reals
    """π', the greedy policy of the old one's advantages."""
    step: float
    """α, the weight of the target."""
    policy: Reals
    """(1 − α) old + α π'."""
    guaranteed_gain: float
    """The bound's value at α: η rises at least this much."""


def mix(old: Reals, target: Reals, step: float) -> Reals:
    """Return (1 − α) old + α target, Eq. 5."""
    if not 0.0 <= step <= 1.0:
        raise ValueError(f"the step of a mixture must be in [0, 1], got {step}")
    return (1.0 - step) * old + step * target


def best_step(old: PolicyEvaluation, target: Reals) -> float:
    """Return the α in [0, 1] that maximizes the lower bound of Eq. 6."""
    gain = old.surrogate_gain(target)
    curvature = 2.0 * bounds.mixture_error(old, target, 1.0)
    if gain <= 0.0:
        return 0.0
    return 1.0 if gain >= curvature else gain / curvature


def conservative_mixture(old: PolicyEvaluation) -> Mixture:
    """Return the mixture with the greedy policy whose step maximizes the guaranteed gain."""
    target = kl_ball.greedy(old.policy, old.advantages)
    step = best_step(old, target)
    guaranteed = step * old.surrogate_gain(target) - bounds.mixture_error(old, target, step)
    return Mixture(target, step, mix(old.policy, target, step), float(np.maximum(guaranteed, 0.0)))


def conservative_policy_iteration(old: PolicyEvaluation) -> Reals:
    """Return the next policy of conservative policy iteration, for `policy_iteration.iterate`."""
    return conservative_mixture(old).policy
