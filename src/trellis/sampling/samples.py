"""What a sampler brings back: a struct of arrays in (time, environment) order.

It stays in that order until the objective flattens it: returns are sums along time. Ends of
episodes come in two kinds that are never merged: `terminated`, where nothing follows, and
`truncated`, where something would have.
"""

from typing import Any, NamedTuple

import numpy as np

Observation = Any  # an array, or a pytree of arrays


class Columns:
    """Arrays over (time, environment) that are filled some rows at a time."""

    def __init__(self, shape: tuple[int, int]):
        self._shape = shape
        self.arrays: list[np.ndarray] = []

    def put(self, t: int, rows: slice, *values: np.ndarray) -> None:
        """Takes (rows, ...) of each array at time t."""
        if not self.arrays:
            self.arrays = [np.empty((*self._shape, *v.shape[1:]), v.dtype) for v in values]
        for array, value in zip(self.arrays, values, strict=True):
            array[t, rows] = value


class Branches(NamedTuple):
    """What grew from N states of the trunks, K rollouts each (vine, Sec. 5.2)."""

    place: np.ndarray
    """(time, environment) of the states of the rollout set, (N, 2)."""
    action: np.ndarray
    """The first of each rollout, not clipped, (N, K, ...)."""
    log_q: np.ndarray
    """log q(a|s) under the distribution that they were drawn from, (N, K)."""
    reward_sum: np.ndarray
    """Σ γᵗ r_t along the rollout, (N, K)."""
    remaining: np.ndarray
    """γ to the number of steps, what is left of the value of what follows; 0 where the rollout
    terminated, (N, K)."""
    final_observation: Observation
    """Where the rollout stopped, as the policy would have seen it, (N, K, ...)."""
    final_age: np.ndarray
    """t within the episode there, (N, K)."""
    length: np.ndarray
    """Simulator steps of the rollout, (N, K)."""


class Samples(NamedTuple):
    """T steps of N environments; with vine, of the trunks."""

    observation: Observation
    """As the policy saw it, (T, N, ...)."""
    raw_observation: Observation
    """Before normalization, (T, N, ...); of pictures, about a thousand frames."""
    action: np.ndarray
    """What the policy drew, not clipped, (T, N, ...)."""
    log_q: np.ndarray
    """log q(a|s) under the distribution that it was drawn from, (T, N)."""
    reward: np.ndarray
    """(T, N)."""
    terminated: np.ndarray
    """(T, N)."""
    truncated: np.ndarray
    """(T, N)."""
    age: np.ndarray
    """t within the episode, 0 at its first step, (T, N)."""
    weight: np.ndarray
    """How much a sample counts; 0 for one that does not, (T, N)."""
    final_at: np.ndarray
    """(time, environment) of the steps that ended an episode, (M, 2)."""
    final_observation: Observation
    """What was seen when it ended, as the policy would have, (M, ...)."""
    last_observation: Observation
    """Where each environment stood after the last step, (N, ...)."""
    episode_return: np.ndarray
    """Of the episodes that ended, undiscounted, (M,)."""
    episode_length: np.ndarray
    """(M,)."""
    branches: Branches | None = None
    """With vine, what grew from the trunks."""

    @property
    def steps(self) -> int:
        """Simulator steps that it took to collect them, rollouts included."""
        rollouts = 0 if self.branches is None else int(self.branches.length.sum())
        return self.reward.size + rollouts

    def representative(self, longest: int | None) -> np.ndarray:
        """Of the episodes that ended, those to take means over where all rows began anew, (M,).

        Of those that begin late only the short ones end in time. `longest` is the time limit:
        whatever began so long before the end is here whole, and nothing else is to count. Without
        a limit, or with too few steps for it, there is nothing better than all.
        """
        if longest is None or longest > len(self.reward):
            return np.ones(len(self.episode_length), bool)
        began = self.final_at[:, 0] + 1 - self.episode_length
        return began <= len(self.reward) - longest

    @property
    def ended(self) -> np.ndarray:
        """Where an episode ended, one way or the other, (T, N)."""
        return self.terminated | self.truncated
