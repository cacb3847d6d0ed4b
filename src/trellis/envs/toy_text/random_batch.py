"""Defines `RandomBatch`, the base of environments with a few integers and a random stream each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Restorability, Snapshot
from trellis.envs.classic.streams import WIDTH, Streams
from trellis.spaces import Observation


class RandomBatch(BatchEnv):
    """Batch whose environments have an integer state and a generator equal to Gymnasium's.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        limits: Number of possible values of each integer of the state, counted from 0.
        *args: The spaces, as in `BatchEnv`.
        **kwargs: The time limit, as in `BatchEnv`.
    """

    restorability = Restorability.SERIALIZABLE
    seconds_per_step = 0.25

    def __init__(
        self, env_id: str, num_envs: int, limits: tuple[int, ...], *args: Any, **kwargs: Any
    ):
        super().__init__(env_id, num_envs, *args, **kwargs)
        self._limits = np.array(limits)
        self._state = np.zeros((len(limits), num_envs), np.int64)
        self._streams = Streams(num_envs)

    def _observe(self, ids: NDArray[np.int64] | slice) -> Observation:
        """Return the observations of some environments as new arrays."""
        raise NotImplementedError

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        return {"state": self._state.T[ids], "generator": self._streams.words.T[ids]}

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        self.require_possible(snapshot)
        self._state[:, ids] = snapshot["state"].T
        self._streams.words[:, ids] = snapshot["generator"].T
        return self._observe(ids)

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` if a state or a generator is out of range."""
        state, words = snapshot["state"].T, snapshot["generator"].T
        outside = (state < 0) | (state >= self._limits[:, None])
        if outside.any() or len(words) != WIDTH or words[4:].max(initial=0) >= 2**32:
            raise self.impossible()

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self._streams.seed(ids, seeds)
