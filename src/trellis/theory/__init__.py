"""Sections 2 and 3 and Appendices A and B, exact, on finite MDPs."""

from trellis.theory.bounds import kl_divergence, max_kl, max_total_variation, total_variation
from trellis.theory.examples import chain, garnet, gridworld, random_policy
from trellis.theory.mdp import FiniteMDP, PolicyEvaluation
from trellis.theory.policy_iteration import iterate

__all__ = [
    "FiniteMDP",
    "PolicyEvaluation",
    "chain",
    "garnet",
    "gridworld",
    "iterate",
    "kl_divergence",
    "max_kl",
    "max_total_variation",
    "random_policy",
    "total_variation",
]
