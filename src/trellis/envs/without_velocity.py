"""Hides the velocities of our tasks, so that one observation does not show the whole state.

A policy has to estimate them from what it saw before, which needs memory (`policy.memory`). The
simulation, its options and its rewards are those of the task whose sensors are hidden.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Snapshot, Step

HIDDEN: dict[str, tuple[str, tuple[int, ...]]] = {
    "trellis/CartPoleNoVelocity-v0": ("CartPole-v1", (1, 3)),
    "trellis/PendulumNoVelocity-v0": ("Pendulum-v1", (2,)),
    "trellis/HopperNoVelocity-v0": ("Hopper-v5", tuple(range(-6, 0))),
    "trellis/Walker2dNoVelocity-v0": ("Walker2d-v5", tuple(range(-9, 0))),
    "trellis/HalfCheetahNoVelocity-v0": ("HalfCheetah-v5", tuple(range(-9, 0))),
}
"""The task behind each id, and the columns of its observations that are hidden."""


class VisibleColumns(BatchEnv):
    """Batch that shows some columns of the observations of another batch.

    Args:
        env_id: Id of this environment.
        batch: The batch behind it, which this one closes.
        hidden: Columns that are not shown; negative ones count from the end.
    """

    def __init__(self, env_id: str, batch: BatchEnv, hidden: tuple[int, ...]):
        space = batch.observation_space
        assert isinstance(space, spaces.Box)
        self._batch, self._visible = batch, np.delete(np.arange(space.shape[0]), hidden)
        low, high = space.low[self._visible], space.high[self._visible]
        visible = spaces.Box(low, high, dtype=space.dtype.type)
        limit = batch.max_episode_steps
        super().__init__(env_id, batch.num_envs, visible, batch.action_space)
        self.max_episode_steps = limit
        self.elapsed, self.seeds, self.info = batch.elapsed, batch.seeds, batch.info
        self.restorability, self.repeatable = batch.restorability, batch.repeatable
        self.most_rows, self.seconds_per_step = batch.most_rows, batch.seconds_per_step

    def reset(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> NDArray[Any]:
        """Start new episodes in some environments and return what is visible of them."""
        return self._batch.reset(ids, seeds)[:, self._visible]

    def step(self, actions: NDArray[Any], active: NDArray[np.bool_] | None = None) -> Step:
        """Advance the active environments by one step."""
        step = self._batch.step(actions, active)
        self.info = self._batch.info
        return step._replace(observation=step.observation[:, self._visible])

    def snapshot(self, ids: NDArray[np.integer]) -> Snapshot:
        """Capture everything that the future of the environments `ids` depends on."""
        return self._batch.snapshot(ids)

    def restore(self, ids: NDArray[np.integer], snapshot: Snapshot) -> NDArray[Any]:
        """Restore the rows of a snapshot and return what is visible of them."""
        return self._batch.restore(ids, snapshot)[:, self._visible]

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` if the batch behind this one never has such a snapshot."""
        try:
            self._batch.require_possible(snapshot)
        except ValueError as error:
            raise self.impossible() from error

    def reseed(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> None:
        """Give the environments `ids` new random streams without changing their states."""
        self._batch.reseed(ids, seeds)

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """Return a picture of environment `index`."""
        return self._batch.render(index)

    def close(self) -> None:
        """Release processes and memory."""
        self._batch.close()

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[Any]:
        raise NotImplementedError

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        raise NotImplementedError
