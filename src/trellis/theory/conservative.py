"""Implements conservative policy iteration (Kakade and Langford, 2002) as stated in Section 2.

The new policy is the mixture (1 − α) old + α target, with target = argmax L_old, which is greedy in
every state (Eq. 5). Its bound, Eq. 6, is a parabola in α:

    η(new) − η(old) ≥ α 𝔸 − 2εγ/(1 − γ)² α²,   𝔸 = L_old(target) − η(old),
                                               ε = max_s |E_{a~target} A_old(s, a)|

The bound is largest on [0, 1] at α = min(1, 𝔸(1 − γ)²/(4εγ)). With that step η never decreases.
"""

from dataclasses import dataclass

import numpy as np

from trellis.theory import bounds, kl_ball
from trellis.theory.mdp import PolicyEvaluation, Reals


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixture policy that one step of conservative policy iteration proposes."""

    target: Reals
    """π', the greedy policy for the advantages of the old one."""
    step: float
    """α, the weight of the target."""
    policy: Reals
    """The mixture (1 − α) old + α π'."""
    guaranteed_gain: float
    """Smallest increase of η that the bound guarantees."""


def mix(old: Reals, target: Reals, step: float) -> Reals:
    """Return the mixture (1 − α) old + α target (Eq. 5), α the step."""
    if not 0.0 <= step <= 1.0:
        raise ValueError(f"step must be in [0, 1], got {step}")
    return (1.0 - step) * old + step * target


def best_step(old: PolicyEvaluation, target: Reals) -> float:
    """Return the step α in [0, 1] that maximizes the lower bound of Eq. 6."""
    gain = old.surrogate_gain(target)
    curvature = 2.0 * bounds.mixture_error(old, target, 1.0)
    if gain <= 0.0:
        return 0.0
    return 1.0 if gain >= curvature else gain / curvature


def conservative_mixture(old: PolicyEvaluation) -> Mixture:
    """Return the mixture with the greedy policy that has the largest guaranteed gain."""
    target = kl_ball.greedy(old.policy, old.advantages)
    step = best_step(old, target)
    guaranteed = step * old.surrogate_gain(target) - bounds.mixture_error(old, target, step)
    return Mixture(target, step, mix(old.policy, target, step), float(np.maximum(guaranteed, 0.0)))


def conservative_policy_iteration(old: PolicyEvaluation) -> Reals:
    """Return the next policy of conservative policy iteration; a step for `iterate`.

    Args:
        old: Evaluation of the old policy.

    Example:
        >>> from trellis.theory import chain, iterate
        >>> mdp = chain(3)
        >>> steps = iterate(mdp, mdp.uniform_policy(), conservative_policy_iteration, 3)
        >>> [round(step.certificate.after, 3) for step in steps]
        [2.67, 2.757, 2.844]
    """
    return conservative_mixture(old).policy
