"""Runs Gymnasium environments in worker processes, for environments that are slow and hold the GIL.

Each worker runs a `GymBatch` over its part of the batch. If a worker hangs or dies, the batch
closes and raises an error that names the environment that was running. There is no deadlock.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Observation, Snapshot, Step
from trellis.envs.errors import EnvError, EnvInterrupted, WorkerDiedError, WorkerTimeoutError
from trellis.envs.gym.answers import ObservationArrays
from trellis.envs.gym.server import CURRENT, GymServer, shared_arrays
from trellis.envs.shared_arrays import split
from trellis.envs.workers import (
    CLOSE_SECONDS,
    START_SECONDS,
    WorkerFailedError,
    WorkerLostError,
    Workers,
)
from trellis.spaces import row_of

logger = logging.getLogger(__name__)


class WorkerBatch(BatchEnv):
    """Batch of `gymnasium.Env` objects in worker processes.

    Snapshots are arrays if the environment provides them, else pickled bytes.

    Args:
        factory: Function that returns a new environment.
        num_envs: Size of the batch.
        name: Name of the environment in errors until a worker has reported its id.
        workers: Number of processes.
        timeout_seconds: Time limit for one answer of a worker.
        max_episode_steps: Time limit; None for that of the environment's registration.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env],
        num_envs: int,
        *,
        name: str = "environment",
        workers: int,
        timeout_seconds: float = 60.0,
        max_episode_steps: int | None = None,
    ):
        if timeout_seconds <= 0:
            raise ValueError(f"worker_timeout_seconds must be > 0, got {timeout_seconds}")
        self._timeout = timeout_seconds
        workers = min(workers, num_envs)
        # The first environment of each worker, and one past the last.
        self._edges = np.array(split(0, num_envs, workers))
        self._parts = [slice(*edges) for edges in itertools.pairwise(self._edges)]
        payload = cloudpickle.dumps(factory)
        self._workers = Workers(
            GymServer,
            [(payload, int(size), max_episode_steps, name) for size in np.diff(self._edges)],
            answer_seconds=timeout_seconds,
        )
        self._everyone = range(workers)
        self._current = np.zeros(workers, np.int64)
        # Needed to report a worker that fails before it has reported its spaces.
        self.env_id, self.num_envs = name, num_envs
        self.seeds, self.elapsed = np.full(num_envs, -1), np.zeros(num_envs, np.int64)
        try:
            self._workers.start()
            self._collect(self._everyone, START_SECONDS)
            self._workers.send(0, GymServer.about)
            arguments, *about = cloudpickle.loads(self._collect([0])[0])
            super().__init__(num_envs=num_envs, **arguments)
            self.restorability, self.why_not_restorable, self.repeatable, self.render_mode = about
            self._share_memory()
        except BaseException:
            self._workers.close()
            raise

    def _share_memory(self) -> None:
        count = len(self._workers)
        self._observations = ObservationArrays(self.observation_space)
        layout = shared_arrays(self._observations, self.num_envs, count)
        arrays = layout.views(self._workers.allocate(layout.size))
        self._current = arrays.pop(CURRENT)
        self._shared = list(arrays.values())
        for worker, start in enumerate(self._edges[:-1].tolist()):
            self._workers.send(worker, GymServer.share, worker, start, self.num_envs, count)
        self._collect(self._everyone)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        self._ask(GymServer.publish_reset, ids, lambda rows: (seeds[rows],))
        return self._observations.tree([array[ids] for array in self._shared])

    def _step(self, actions: Any, active: NDArray[np.bool_]) -> Step:
        asked = [worker for worker, part in enumerate(self._parts) if active[part].any()]
        for worker in asked:
            part = self._parts[worker]
            mine = row_of(actions, part)
            self._workers.send(worker, GymServer.publish_step, mine, active[part])
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        self.info = {}
        for worker, answer in zip(asked, self._collect(asked), strict=True):
            part = self._parts[worker]
            reward[part], terminated[part], truncated[part], info = answer
            for name, values in info.items():
                self.info.setdefault(name, np.full(self.num_envs, np.nan))[part] = values
        tree = self._observations.tree([array.copy() for array in self._shared])
        if self.on_step is not None:
            self.on_step(int(active.sum()))
        return Step(tree, reward, terminated, truncated)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        snapshot: dict[str, NDArray[Any]] = {}
        for rows, part in self._ask(GymServer.snapshot, ids, lambda rows: ()):
            for name, values in part.items():
                empty = np.empty((len(ids), *values.shape[1:]), values.dtype)
                snapshot.setdefault(name, empty)[rows] = values
        return snapshot

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        def part(rows: NDArray[np.int64]) -> tuple[Snapshot]:
            return ({name: np.asarray(values)[rows] for name, values in snapshot.items()},)

        self._ask(GymServer.publish_restore, ids, part)
        return self._observations.tree([array[ids] for array in self._shared])

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self._ask(GymServer.reseed, ids, lambda rows: (seeds[rows],))

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3)."""
        worker = int(self._owners(np.array(index)))
        self._workers.send(worker, GymServer.render, int(index - self._edges[worker]))
        return self._collect([worker])[0]

    def close(self) -> None:
        """Close the environments and end the processes, by force if they do not answer."""
        if not self._workers.close.alive:
            return
        try:
            for worker in self._everyone:
                self._workers.send(worker, GymServer.close)
            self._collect(self._everyone, CLOSE_SECONDS)
        except WorkerTimeoutError as error:
            logger.warning("%s", error)
        finally:
            self._workers.close()

    def _owners(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._edges, ids, side="right") - 1

    def _ask(
        self,
        command: Callable[..., Any],
        ids: NDArray[np.int64],
        arguments: Callable[[NDArray[np.int64]], tuple[Any, ...]],
    ) -> list[tuple[NDArray[np.int64], Any]]:
        """Send a command to the workers of the environments `ids` and return their answers.

        Args:
            command: A method of the server whose first argument is the worker's own ids.
            ids: Environments of the batch.
            arguments: Function from a worker's positions in `ids` to its other arguments.

        Returns:
            For each worker that has some of `ids`, their positions in `ids` and its answer.
        """
        owners, positions = self._owners(ids), {}
        for worker in np.unique(owners).tolist():
            rows = positions[worker] = np.flatnonzero(owners == worker)
            local = ids[rows] - self._edges[worker]
            self._workers.send(worker, command, local, *arguments(rows))
        return list(zip(positions.values(), self._collect(positions), strict=True))

    def _collect(self, asked: Iterable[int], seconds: float | None = None) -> list[Any]:
        """Return the answers of all workers in `asked`, or raise the first error among them."""
        seconds = self._timeout if seconds is None else seconds
        deadline = time.monotonic() + seconds
        answers, errors = [], []
        for worker in asked:
            try:
                left = max(0.0, deadline - time.monotonic())
                answers.append(self._workers.receive(worker, left))
            except WorkerFailedError as failure:
                errors.append(self._translate(worker, failure))
            except WorkerLostError as lost:
                raise self._give_up(worker, lost.exit_code, seconds) from None
        for error in errors:
            raise error
        return answers

    def _translate(self, worker: int, failure: WorkerFailedError) -> BaseException:
        """Return the error of a worker with the environment's index in the whole batch."""
        error = failure.error
        if isinstance(error, EnvInterrupted):  # It raised this itself: a worker gets no Ctrl-C.
            error = error.error
        if not isinstance(error, EnvError):
            error.__cause__ = failure
            return error
        translated = type(error)(
            error.reason,
            env_id=self.env_id,
            index=error.index + int(self._edges[worker]),
            step=error.step,
            seed=error.seed,
        )
        translated.__cause__ = error.__cause__
        return translated

    def _give_up(self, worker: int, exit_code: int | None, seconds: float) -> EnvError:
        """Close the batch and return the error about a worker that was lost."""
        index = int(self._edges[worker] + self._current[worker])
        self._workers.close()
        if exit_code is not None:
            reason = f"worker process {worker} ended with exit code {exit_code}"
            return self.error(WorkerDiedError, reason, index)
        reason = (
            f"worker process {worker} did not answer within {seconds:g} s and was ended; increase"
            " worker_timeout_seconds if the environment is slow"
        )
        return self.error(WorkerTimeoutError, reason, index)
