"""Implements the worker's side of `worker_batch.py`: a `GymBatch` over part of the batch.

Observations are written to shared memory, and everything else is the answer to a command. The
memory starts with one number per worker: the environment that it is running.
"""

import mmap
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import Observation, Snapshot
from trellis.envs.gym.answers import ObservationArrays
from trellis.envs.gym.batch import GymBatch
from trellis.envs.shared_arrays import SharedArrays
from trellis.envs.values import leaves

CURRENT = "current"
"""Name of the shared array that holds the environment that each worker is running."""


def shared_arrays(observations: ObservationArrays, num_envs: int, workers: int) -> SharedArrays:
    """Return the layout of the memory: the environment each worker runs, and all observations."""
    fields = {leaf.name: ((num_envs, *leaf.shape), leaf.dtype) for leaf in observations.leaves}
    return SharedArrays({CURRENT: ((workers,), np.int64), **fields})


class GymServer(GymBatch):
    """Environments of one worker; its methods are the commands of the parent.

    Methods named `publish_…` write observations to shared memory.

    Args:
        memory_fd: File descriptor of the shared memory.
        factory: Pickled function that returns a new environment.
        num_envs: Number of environments of this worker.
        max_episode_steps: Time limit.
        name: Name of the environment in errors until its own id is known.
    """

    def __init__(
        self,
        memory_fd: int,
        factory: bytes,
        num_envs: int,
        max_episode_steps: int | None,
        name: str,
    ):
        factories = [cloudpickle.loads(factory)] * num_envs
        limit = max_episode_steps
        super().__init__(factories, max_episode_steps=limit, across_processes=True, name=name)
        self._memory_fd = memory_fd
        self._shared: list[NDArray[Any]] = []

    def map_actions(self, actions: Any) -> Any:
        """Return the actions unchanged, because the parent has mapped them."""
        return actions

    def about(self) -> bytes:
        """Return a description of the environment: arguments of `BatchEnv`, and more.

        It is pickled by cloudpickle, because spaces may be classes of a script.
        """
        arguments = {
            "env_id": self.env_id,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "max_episode_steps": self.max_episode_steps,
        }
        about = (self.restorability, self.why_not_restorable, self.repeatable, self.render_mode)
        return cloudpickle.dumps((arguments, *about))

    def share(self, worker: int, start: int, num_envs: int, workers: int) -> None:
        """Use the shared memory; the environments of this worker begin at index `start`."""
        layout = shared_arrays(self._observations, num_envs, workers)
        arrays = layout.views(mmap.mmap(self._memory_fd, layout.size))
        self.current = arrays.pop(CURRENT)[worker : worker + 1]
        self._shared = [array[start : start + self.num_envs] for array in arrays.values()]

    def publish_reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Start episodes and write their first observations to shared memory."""
        self._publish(ids, self.reset(ids, seeds))

    def publish_restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> None:
        """Restore environments and write their observations to shared memory."""
        self._publish(ids, self.restore(ids, snapshot))

    def publish_step(
        self, actions: Any, active: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], dict[str, NDArray[Any]]]:
        """Advance the active environments; return rewards, flags and reported quantities."""
        observation, reward, terminated, truncated = self.step(actions, active)
        self._publish(slice(None), observation)
        return reward, terminated, truncated, dict(self.info)

    def _publish(self, ids: NDArray[np.int64] | slice, observation: Observation) -> None:
        for shared, array in zip(self._shared, leaves(observation), strict=True):
            shared[ids] = array
