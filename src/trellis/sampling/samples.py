"""Defines `Samples`, the result of a sampler: a struct of arrays in (time, environment) order.

The arrays keep this order until the objective flattens them, because returns are sums along time
(Sec. 5). Episodes end in two ways that are never merged: `terminated` means that nothing follows,
`truncated` means that the episode would have continued.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.sampling.frames import Stacks


class Carries(NamedTuple):
    """What a policy with memory carried along the paths."""

    before: Float[np.ndarray, "time env values"]
    """Carry before each step, zeros where an episode starts."""
    final: Float[np.ndarray, "episode values"]
    """Carry after the last step of each episode that ended."""
    last: Float[np.ndarray, "env values"]
    """Carry of each environment after the last step, zeros after a reset."""


class Branches(NamedTuple):
    """Rollouts of vine: K from each of the N states of the rollout set (Sec. 5.2)."""

    place: Int[np.ndarray, "state 2"]
    """(time, environment) of each state on the trunks."""
    action: Shaped[np.ndarray, "state action ..."]
    """First action of each rollout, not clipped."""
    log_q: Float[np.ndarray, "state action"]
    """log q(a|s) of the first action under the proposal."""
    reward_sum: Float[np.ndarray, "state action"]
    """Discounted sum of rewards along the rollout, Σ γᵗ r_t."""
    remaining: Float[np.ndarray, "state action"]
    """Discount of the value after the rollout: γ^length, or 0 if the rollout terminated."""
    final_observation: Shaped[np.ndarray, "state action ..."]
    """Normalized observation at which the rollout stopped."""
    final_age: Int[np.ndarray, "state action"]
    """Time step within the episode at which the rollout stopped."""
    length: Int[np.ndarray, "state action"]
    """Number of simulator steps of the rollout; 0 if its first action is illegal."""
    final_carry: Float[np.ndarray, "state action values"] | None = None
    """Carry of a policy with memory where the rollout stopped; otherwise None."""
    legal: Bool[np.ndarray, "state action"] | None = None
    """Whether the first action is legal; None if all are. Illegal ones were not executed."""

    def of_legal(self, values: np.ndarray) -> np.ndarray:
        """Return the values (state, action) of the rollouts with a legal first action."""
        return values if self.legal is None else values[self.legal]


class Samples(NamedTuple):
    """Samples of one iteration: T steps of N environments.

    With vine these are the trunks, and `branches` holds the rollouts.
    """

    observation: Shaped[np.ndarray, "time env ..."] | Stacks
    """Normalized observation that the policy acted on."""
    raw_observation: Shaped[np.ndarray, "time env ..."]
    """Encoded observation before normalization; for pictures, about a thousand of the frames."""
    action: Shaped[np.ndarray, "time env ..."]
    """Action that the policy sampled, not clipped."""
    log_q: Float[np.ndarray, "time env"]
    """log q(a|s) of the action under the policy that sampled it."""
    reward: Float[np.ndarray, "time env"]
    """Reward of the step."""
    terminated: Bool[np.ndarray, "time env"]
    """Whether the step ended its episode in a terminal state."""
    truncated: Bool[np.ndarray, "time env"]
    """Whether the step ended its episode early, for example at a time limit."""
    age: Int[np.ndarray, "time env"]
    """Time step within the episode, 0 at its first step."""
    final_at: Int[np.ndarray, "episode 2"]
    """(time, environment) of the steps that ended an episode."""
    final_observation: Shaped[np.ndarray, "episode ..."] | Stacks
    """Normalized observation after the last step of each episode that ended."""
    last_observation: Shaped[np.ndarray, "env ..."] | Stacks
    """Normalized observation of each environment after the last step, or after its reset."""
    episode_return: Float[np.ndarray, " episode"]
    """Undiscounted return of each episode that ended."""
    episode_length: Int[np.ndarray, " episode"]
    """Number of steps of each episode that ended."""
    branches: Branches | None = None
    """Rollouts from states of the trunks; None for single path."""
    carries: Carries | None = None
    """Carries of a policy with memory; None for feed-forward policies."""

    @property
    def steps(self) -> int:
        """Number of simulator steps that the samples took, rollouts included."""
        rollouts = 0 if self.branches is None else int(self.branches.length.sum())
        return self.reward.size + rollouts

    @property
    def ended(self) -> Bool[np.ndarray, "time env"]:
        """Whether the step ended its episode, by termination or by truncation."""
        return self.terminated | self.truncated

    def representative(self, longest: int | None) -> Bool[np.ndarray, " episode"]:
        """Select the ended episodes that give unbiased means.

        The environments must all have been reset at time 0. Among episodes that start late, only
        short ones end in time, which would bias the means. So an episode counts only if even the
        longest possible episode would have ended in time. All episodes count if there is no time
        limit or if the limit exceeds the number of steps.

        Args:
            longest: Time limit of the environment in steps, or None.

        Returns:
            A mask over the ended episodes.
        """
        if longest is None or longest > len(self.reward):
            return np.ones(len(self.episode_length), bool)
        first_step = self.final_at[:, 0] + 1 - self.episode_length
        return first_step <= len(self.reward) - longest


class PathState(NamedTuple):
    """State of a sampler between two iterations; the environments hold the rest."""

    observation: Shaped[np.ndarray, "env ..."]
    """Encoded observation of each environment, not normalized."""
    age: Int[np.ndarray, " env"]
    """Number of steps since the episode began."""
    episode_return: Float[np.ndarray, " env"]
    """Sum of rewards since the episode began."""
    carry: Float[np.ndarray, "env values"] | None = None
    """Carry of a policy with memory; None for feed-forward policies."""

    def copy(self) -> "PathState":
        """Return a state with arrays of its own."""
        *arrays, carry = self
        copied = PathState(*(array.copy() for array in arrays))
        return copied if carry is None else copied._replace(carry=carry.copy())
