"""Appendix B: Theorem 1 by perturbation theory, term by term.

With G = (1 − γP_π)⁻¹, G̃ = (1 − γP_π̃)⁻¹ and Δ = P_π̃ − P_π, the expansion is exact:

    η(π̃) − η(π) = γ r G Δ G ρ₀ + γ² r G Δ G Δ G̃ ρ₀

The first term is L_π(π̃) − L_π(π), the second is at most 4εγα²/(1 − γ)². As in the paper,
densities are column vectors and rewards are row vectors, so P_π here is the transpose of
`FiniteMDP.transitions`. r must be a function of the state alone: with r(s, a) the reward itself
changes with the policy and the expansion lacks that term, so such an MDP is refused.

Departs from Appendix B in its slips: there the signs of π̃ − π and of Δ flip in the lines between
the definition of L and γvΔρ_π; "‖Δ‖₁ = 2α" is an inequality; and in the last chain ‖vΔ‖_∞ stands
for ‖γvΔ‖_∞, which is what was bounded. The result stands.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory.bounds import max_total_variation, theorem1_error
from trellis.theory.mdp import PolicyEvaluation


@dataclass(frozen=True)
class Perturbation:
    """The expansion's terms, and the factors that Appendix B bounds."""

    first_order: float
    """γ r G Δ G ρ₀ = γ v Δ ρ_π, which is L_π(π̃) − L_π(π)."""
    second_order: float
    """γ² r G Δ G Δ G̃ ρ₀, the error of L."""
    dual_norm: float
    """‖γ v Δ‖_∞ = max_s |Ā(s)|."""
    dual_norm_bound: float
    """2αε."""
    density_norm: float
    """‖G Δ G̃ ρ₀‖₁."""
    density_norm_bound: float
    """2α/(1 − γ)²."""
    second_order_bound: float
    """4εγα²/(1 − γ)², the product of the two bounds and γ."""

    @property
    def total(self) -> float:
        """The sum of the terms, which is η(π̃) − η(π)."""
        return self.first_order + self.second_order


def expand(old: PolicyEvaluation, new: ArrayLike) -> Perturbation:
    """Return Appendix B's expansion of η(new) − η(old), from the matrices themselves."""
    mdp = old.mdp
    if mdp.r.ndim != 1:
        raise ValueError(
            "Appendix B's expansion needs rewards r[s] that depend on the state alone; this MDP has"
            f" r[s, a] of shape {mdp.r.shape}. Use the bounds of Appendix A, which hold for both"
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
