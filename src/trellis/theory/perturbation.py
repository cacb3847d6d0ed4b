"""Computes the terms of Appendix B, which proves Theorem 1 by perturbation theory.

With G = (1 − γP_π)⁻¹, G̃ = (1 − γP_π̃)⁻¹ and Δ = P_π̃ − P_π, the expansion is exact:

    η(π̃) − η(π) = γ r G Δ G ρ₀ + γ² r G Δ G Δ G̃ ρ₀

The first term is L_π(π̃) − L_π(π), and the second is at most 4εγα²/(1 − γ)². As in the paper,
densities are column vectors and rewards are row vectors, so P_π here is the transpose of
`FiniteMDP.transitions`. The rewards must depend on the state alone. With r(s, a), the reward itself
changes with the policy, and the expansion has no term for that.

Departs from Appendix B by correcting its errors, which do not change its result:

- The signs of π̃ − π and of Δ flip between the definition of L and γvΔρ_π.
- "‖Δ‖₁ = 2α" is an inequality.
- The last chain of inequalities has ‖vΔ‖_∞ in place of ‖γvΔ‖_∞, which is what was bounded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory.bounds import max_total_variation, theorem1_error
from trellis.theory.mdp import PolicyEvaluation


@dataclass(frozen=True)
class Perturbation:
    """Terms of the expansion, and the factors that Appendix B bounds."""

    first_order: float
    """First term γ r G Δ G ρ₀ = γ v Δ ρ_π, which is L_π(π̃) − L_π(π)."""
    second_order: float
    """Second term γ² r G Δ G Δ G̃ ρ₀, which is the error of L."""
    dual_norm: float
    """Norm ‖γ v Δ‖_∞ = max_s |Ā(s)|."""
    dual_norm_bound: float
    """Bound on `dual_norm`, 2αε."""
    density_norm: float
    """Norm ‖G Δ G̃ ρ₀‖₁."""
    density_norm_bound: float
    """Bound on `density_norm`, 2α/(1 − γ)²."""
    second_order_bound: float
    """Bound on the second term, 4εγα²/(1 − γ)²: the product of both bounds and γ."""

    @property
    def total(self) -> float:
        """Sum of both terms, which is η(π̃) − η(π)."""
        return self.first_order + self.second_order


def expand(old: PolicyEvaluation, new: ArrayLike) -> Perturbation:
    """Return Appendix B's expansion of η(new) − η(old), computed from its matrices.

    Args:
        old: Evaluation of the old policy.
        new: New policy, [s, a].

    Raises:
        ValueError: The rewards of the MDP depend on the action.

    Example:
        >>> from trellis.theory import chain
        >>> mdp = chain(3)
        >>> old, new = mdp.evaluate(mdp.uniform_policy()), [[0.4, 0.6]] * 3
        >>> bool(np.isclose(expand(old, new).total, mdp.performance(new) - old.performance))
        True
    """
    mdp = old.mdp
    if mdp.r.ndim != 1:
        raise ValueError(
            "the expansion of Appendix B needs rewards r[s] that depend on the state alone; this"
            f" MDP has r[s, a] of shape {mdp.r.shape}. Use the bounds of Appendix A, which hold for"
            " both"
        )
    gamma, identity = mdp.gamma, np.eye(mdp.num_states)
    P_old, P_new = mdp.transitions(old.policy).T, mdp.transitions(new).T
    delta = P_new - P_old
    G = np.linalg.inv(identity - gamma * P_old)
    rho_new = np.linalg.solve(identity - gamma * P_new, mdp.rho0)
    dual = gamma * (mdp.r @ G) @ delta
    density = G @ (delta @ rho_new)
    alpha, epsilon = max_total_variation(old.policy, new), old.max_advantage
    return Perturbation(
        first_order=float(dual @ G @ mdp.rho0),
        second_order=float(gamma * dual @ density),
        dual_norm=float(np.abs(dual).max()),
        dual_norm_bound=2.0 * alpha * epsilon,
        density_norm=float(np.abs(density).sum()),
        density_norm_bound=2.0 * alpha / (1.0 - gamma) ** 2,
        second_order_bound=theorem1_error(epsilon, gamma, alpha),
    )
