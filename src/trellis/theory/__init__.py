"""Computes the theory of the paper exactly on finite MDPs (Secs. 2 and 3, Apps. A and B).

`FiniteMDP` holds an MDP, `FiniteMDP.evaluate` returns the exact quantities of a tabular policy, and
`iterate` runs a method such as `algorithm1` and certifies each step. The names in `__all__` are
public. The modules hold more: `bounds` has every bound of Appendix A, `perturbation` has the
expansion of Appendix B, `as_gymnasium` and `as_batch` turn MDPs into environments.

Example:
    >>> import numpy as np
    >>> from trellis.theory import algorithm1, garnet, iterate
    >>> mdp = garnet(num_states=10, num_actions=3, branching=4, rng=np.random.default_rng(0))
    >>> steps = list(iterate(mdp, mdp.uniform_policy(), algorithm1, iterations=5))
    >>> all(step.certificate.gain >= step.certificate.minorizer_gain for step in steps)
    True
"""

from trellis.theory.bounds import (
    coupling_bound,
    kl_bound,
    kl_divergence,
    max_kl,
    max_total_variation,
    mean_kl,
    penalty_coefficient,
    theorem1_bound,
    total_variation,
)
from trellis.theory.conservative import conservative_policy_iteration
from trellis.theory.examples import chain, garnet, gridworld, random_policy
from trellis.theory.mdp import FiniteMDP, PolicyEvaluation
from trellis.theory.policy_iteration import (
    Certificate,
    Iteration,
    algorithm1,
    certify,
    iterate,
    max_kl_trust_region,
    mean_kl_trust_region,
    optimal_performance,
    optimal_values,
)

__all__ = [
    "Certificate",
    "FiniteMDP",
    "Iteration",
    "PolicyEvaluation",
    "algorithm1",
    "certify",
    "chain",
    "conservative_policy_iteration",
    "coupling_bound",
    "garnet",
    "gridworld",
    "iterate",
    "kl_bound",
    "kl_divergence",
    "max_kl",
    "max_kl_trust_region",
    "max_total_variation",
    "mean_kl",
    "mean_kl_trust_region",
    "optimal_performance",
    "optimal_values",
    "penalty_coefficient",
    "random_policy",
    "theorem1_bound",
    "total_variation",
]
