"""Computes the exact quantities of the average-reward criterion (Zhang and Ross, 2021).

An MDP whose episodes end is a process that never ends: after a terminal state it pays a cost and
continues from ρ₀. With P and r of that process, and its stationary distribution d_π,

    ρ_π = Σ_s d_π(s) r_π(s)                                   gain
    h_π = r_π − ρ_π + P_π h_π,   Σ_s d_π(s) h_π(s) = 0        bias (differential value)
    A_π(s, a) = r(s, a) − ρ_π + Σ_s' P(s'|s, a) h_π(s') − h_π(s)

One linear solve each gives d_π and h_π.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from trellis.theory.mdp import FiniteMDP, Reals


@dataclass(frozen=True, eq=False)
class AverageEvaluation:
    """Exact quantities of one policy for the average reward; `evaluate_average` creates it."""

    gain: float
    """Average reward per step ρ_π."""
    bias: Reals
    """Differential values h_π[s], with mean 0 under the stationary distribution."""
    advantages: Reals
    """Advantages A_π[s, a]."""
    stationary: Reals
    """Stationary distribution d_π[s]; 0 for terminal states."""


def evaluate_average(
    mdp: FiniteMDP, policy: ArrayLike, reset_cost: float = 0.0
) -> AverageEvaluation:
    """Return the exact gain, bias and advantages of a policy.

    Args:
        mdp: The MDP. Its discount factor does not matter.
        policy: Probabilities π[s, a].
        reset_cost: Cost of reaching a terminal state.

    Raises:
        ValueError: The gain depends on the start, because the policy has several recurrent classes;
            or episodes may start in a terminal state.

    Example:
        >>> mdp = FiniteMDP([[[0.0, 1.0]], [[1.0, 0.0]]], r=[0.0, 1.0], rho0=[1.0, 0.0], gamma=0.0)
        >>> found = evaluate_average(mdp, [[1.0], [1.0]])
        >>> round(found.gain, 9), found.bias.round(9).tolist()
        (0.5, [-0.25, 0.25])
    """
    policy, over = mdp.check_policy(policy), mdp.is_over
    if (mdp.rho0[over] > 0).any():
        raise ValueError("rho0 must not start in a terminal state")
    ends = mdp.P[:, :, over].sum(axis=2)
    transitions = np.where(over, 0.0, mdp.P) + ends[:, :, None] * mdp.rho0
    rewards = mdp.action_rewards - reset_cost * ends
    n = mdp.num_states
    chain = (policy[:, :, None] * transitions).sum(axis=1)
    expected = (policy * rewards).sum(axis=1)
    # d(I − P) = 0 and Σd = 1. The null space has one dimension if there is one recurrent class.
    system = np.vstack([(np.eye(n) - chain).T, np.ones(n)])
    stationary, _, rank, _ = np.linalg.lstsq(system, np.eye(n + 1)[-1], rcond=1e-10)
    if rank < n:
        raise ValueError("policy has several recurrent classes, so its gain depends on the start")
    gain = float(stationary @ expected)
    bias = np.linalg.solve(np.eye(n) - chain + stationary, expected - gain)
    advantages = rewards - gain + transitions @ bias - bias[:, None]
    return AverageEvaluation(gain, bias, advantages, stationary)
