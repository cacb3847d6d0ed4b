"""Defines `ArrayBatch`, the base of environments whose state is a few numbers.

A subclass says how an episode starts and how a state changes; this class keeps the states of all
environments in one array. The dynamics have no random numbers, so a snapshot is a copy of columns.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Restorability, Snapshot, Step

States = NDArray[np.float64]
"""States of n environments, one column each: (numbers per state, n)."""


class Moved(NamedTuple):
    """Result of the dynamics for every environment of a batch."""

    state: States
    """States after the step."""
    reward: NDArray[np.float64]
    """Rewards of the step."""
    terminated: NDArray[np.bool_]
    """Whether the step ended the episode."""


class ArrayBatch(BatchEnv):
    """Batch of environments whose state is a few numbers, without random numbers after the start.

    The arguments are those of `BatchEnv`.
    """

    restorability = Restorability.SERIALIZABLE
    numbers: int
    """How many numbers one state has."""
    largest: ClassVar[float] = 1e9
    """Largest absolute value in a checkpoint. With larger ones the dynamics may never end."""

    def __init__(self, env_id: str, num_envs: int, *args: Any, **kwargs: Any):
        super().__init__(env_id, num_envs, *args, **kwargs)
        self._state = np.zeros((self.numbers, num_envs))

    @abc.abstractmethod
    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the first state of each episode, in rows."""

    @abc.abstractmethod
    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        """Return the next states with rewards and flags, for all environments."""

    @abc.abstractmethod
    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the observations of states, in rows; `first` marks the start of an episode."""

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[Any]:
        self._state[:, ids] = self._start(seeds).T
        return self._observe(self._state[:, ids], np.ones(len(ids), bool))

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        moved = self._move(self._state, actions)
        self._state = np.where(active, moved.state, self._state)
        reward = np.where(active, moved.reward, 0.0)
        observation = self._observe(self._state, ~active & (self.elapsed == 0))
        return Step(observation, reward, active & moved.terminated, np.zeros(self.num_envs, bool))

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` if a state has a number above `largest`."""
        if not np.all(np.abs(snapshot["state"]) <= self.largest):
            raise self.impossible()

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        return {"state": self._state.T[ids]}

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> NDArray[Any]:
        self._state[:, ids] = snapshot["state"].T
        return self._observe(self._state[:, ids], self.elapsed[ids] == 0)
