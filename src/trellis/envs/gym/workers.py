"""Gymnasium environments in worker processes, for environments that are slow and hold the GIL.

Each worker runs a `GymBatch` over its share of the rows. Observations come back through shared
memory, everything else through a pipe. The parent waits for an answer, for the end of the process
and for the clock, whichever comes first: a worker that hangs or dies is an error with the row that
it was at, never a deadlock, and the batch is closed after it.
"""

import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from numpy.typing import NDArray

from trellis.envs import batch as contract
from trellis.envs.batch import (
    BatchEnv,
    EnvError,
    Observation,
    Restorability,
    Rows,
    Step,
    WorkerDiedError,
    WorkerTimeoutError,
)
from trellis.envs.gym.border import ObservationBorder
from trellis.envs.gym.worker_process import serve, shared_size, shared_views

# Python, NumPy and Gymnasium have to be loaded; a busy machine may take long for it.
START_SECONDS = 180.0
CLOSE_SECONDS = 5.0


class WorkerFailure(RuntimeError):  # noqa: N818 - it is a cause, shown under the error
    """What happened in a worker process, as its traceback told it."""


class WorkerBatch(BatchEnv):
    """Rows spread over processes; each answer has to come within `timeout_seconds`.

    A script that makes one needs the usual `if __name__ == "__main__":`, since the workers import
    it. Rows of a snapshot are arrays where the environment can give such, else pickled bytes.
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
        workers = min(workers, num_envs)
        if timeout_seconds <= 0:
            raise ValueError(f"worker_timeout_seconds must be > 0, got {timeout_seconds}")
        self._timeout = timeout_seconds
        self._memory: shared_memory.SharedMemory | None = None
        # Never fork: JAX has threads in this process, and their locks would be copied with it.
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        # The first rows of each worker, and one past the last.
        self._edges = np.linspace(0, num_envs, workers + 1).round().astype(int)
        self._workers: list[tuple[Any, multiprocessing.connection.Connection]] = []
        self._owing: set[int] = set()
        """Workers that have yet to answer."""
        payload = cloudpickle.dumps(factory)
        for start, stop in zip(self._edges, self._edges[1:], strict=False):
            ours, theirs = context.Pipe()
            arguments = (theirs, payload, int(stop - start), max_episode_steps)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._owing.add(len(self._workers))
            self._workers.append((process, ours))
        # Enough to report a worker that fails before it has said what its spaces are.
        self.env_id, self.num_envs = name, num_envs
        self.seeds, self.elapsed = np.full(num_envs, -1), np.zeros(num_envs, np.int64)
        self._at_work = self._edges[:-1] * 0
        try:
            about = self._collect(range(workers), START_SECONDS)[0]
        except BaseException:
            self._end_processes()
            raise
        super().__init__(
            about["env_id"],
            num_envs,
            about["observation_space"],
            about["action_space"],
            max_episode_steps=about["max_episode_steps"],
        )
        self.restorability = Restorability(about["restorability"])
        self.why_not_restorable = about["why_not_restorable"]
        self.render_mode = about["render_mode"]
        self._border = ObservationBorder(self.observation_space)
        self._share_memory()

    def _share_memory(self) -> None:
        count = len(self._workers)
        size = shared_size(self._border, self.num_envs, count)
        self._memory = shared_memory.SharedMemory(create=True, size=size)
        self._at_work, self._shared = shared_views(self._memory, self._border, self.num_envs, count)
        for worker in range(count):
            start = int(self._edges[worker])
            self._send(worker, "share", (self._memory.name, self.num_envs, count, worker, start))
        self._collect(range(count), START_SECONDS)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        asked = self._ask_rows("reset", ids, lambda rows: (seeds[rows],))
        self._collect(asked)
        return self._border.tree([array[ids] for array in self._shared])

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        asked = []
        for worker, (start, stop) in enumerate(self._ranges()):
            if active[start:stop].any():
                self._send(worker, "step", (actions[start:stop], active[start:stop]))
                asked.append(worker)
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        self.info = {}
        for worker, answer in zip(asked, self._collect(asked), strict=True):
            rows = slice(self._edges[worker], self._edges[worker + 1])
            reward[rows], terminated[rows], truncated[rows], info = answer
            for name, values in info.items():
                self.info.setdefault(name, np.full(self.num_envs, np.nan))[rows] = values
        tree = self._border.tree([array.copy() for array in self._shared])
        return Step(tree, reward, terminated, truncated)

    def _snapshot(self, ids: NDArray[np.int64]) -> Rows:
        positions = self._positions(ids)
        asked = self._ask_rows("snapshot", ids, lambda rows: ())
        rows: dict[str, NDArray[Any]] = {}
        for worker, part in zip(asked, self._collect(asked), strict=True):
            for name, values in part.items():
                empty = np.empty((len(ids), *values.shape[1:]), values.dtype)
                rows.setdefault(name, empty)[positions[worker]] = values
        return rows

    def _restore(self, ids: NDArray[np.int64], rows: Rows) -> Observation:
        def part(at: NDArray[np.int64]) -> tuple[dict[str, NDArray[Any]]]:
            return ({name: np.asarray(values)[at] for name, values in rows.items()},)

        self._collect(self._ask_rows("restore", ids, part))
        return self._border.tree([array[ids] for array in self._shared])

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self._collect(self._ask_rows("reseed", ids, lambda rows: (seeds[rows],)))

    def render(self, index: int) -> NDArray[np.uint8]:
        """A picture of row `index`, (height, width, 3)."""
        worker = int(np.searchsorted(self._edges, index, side="right")) - 1
        self._send(worker, "render", (int(index - self._edges[worker]),))
        return self._collect([worker])[0]

    def close(self) -> None:
        """Closes the environments and ends the processes, by force if they do not answer."""
        if not self._workers:
            return
        asked, failure = [], None
        try:
            for worker in range(len(self._workers)):
                self._send(worker, "close", ())
                asked.append(worker)
            self._collect(asked, CLOSE_SECONDS)
        except EnvError as error:
            failure = error
        self._end_processes()
        if failure is not None:
            raise failure

    def _ranges(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in zip(self._edges, self._edges[1:], strict=False)]

    def _positions(self, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """For each worker, the positions in `ids` of the rows that it has."""
        owner = np.searchsorted(self._edges, ids, side="right") - 1
        return [np.flatnonzero(owner == worker) for worker in range(len(self._workers))]

    def _ask_rows(
        self, command: str, ids: NDArray[np.int64], payload: Callable[[NDArray[np.int64]], tuple]
    ) -> list[int]:
        asked = []
        for worker, positions in enumerate(self._positions(ids)):
            if positions.size:
                local = ids[positions] - self._edges[worker]
                self._send(worker, command, (local, *payload(positions)))
                asked.append(worker)
        return asked

    def _send(self, worker: int, command: str, payload: tuple[Any, ...]) -> None:
        if not self._workers:
            raise RuntimeError(f"{self.env_id}: this batch was closed; make a new one")
        if worker in self._owing:
            # An answer that nobody waited for, because of Ctrl-C, is not the answer to this.
            self._answer(worker, self._timeout, self._timeout)
        process, connection = self._workers[worker]
        self._owing.add(worker)
        try:
            connection.send((command, payload))
        except (BrokenPipeError, ConnectionResetError):
            raise self._lost(worker, process) from None

    def _collect(self, asked: Any, seconds: float | None = None) -> list[Any]:
        """The answers of the workers `asked`, all of them, before the first error is raised."""
        seconds = self._timeout if seconds is None else seconds
        deadline = time.monotonic() + seconds
        answers = {}
        for worker in asked:
            left = max(0.0, deadline - time.monotonic())
            answers[worker] = self._answer(worker, left, seconds)
        for worker, (status, value) in answers.items():
            if status == "failed":
                raise self._retold(worker, value)
        return [value for _, value in answers.values()]

    def _answer(self, worker: int, left: float, seconds: float) -> tuple[str, Any]:
        """What a worker answers within the seconds that are `left` of all."""
        process, connection = self._workers[worker]
        ready = multiprocessing.connection.wait([connection, process.sentinel], left)
        if not ready:
            raise self._late(worker, seconds)
        try:
            # A worker may have answered and ended: what it said counts.
            answer = connection.recv() if connection.poll(0) else None
        except (EOFError, ConnectionResetError):
            answer = None
        if answer is None:
            raise self._lost(worker, process)
        self._owing.discard(worker)
        return answer

    def _late(self, worker: int, seconds: float) -> EnvError:
        reason = (
            f"worker process {worker} gave no answer in {seconds:g} s and was ended; raise"
            " worker_timeout_seconds if the environment is only slow"
        )
        return self._given_up(WorkerTimeoutError, reason, worker)

    def _lost(self, worker: int, process: Any) -> EnvError:
        process.join(1.0)
        reason = f"worker process {worker} ended with exit code {process.exitcode}"
        return self._given_up(WorkerDiedError, reason, worker)

    def _given_up(self, kind: type[EnvError], reason: str, worker: int) -> EnvError:
        index = int(self._edges[worker] + self._at_work[worker])
        error = self.error(kind, reason, None, index)
        self._end_processes()
        return error

    def _retold(self, worker: int, told: dict[str, Any]) -> BaseException:
        cause = cloudpickle.loads(told["cause"])
        if told["kind"] is None:
            error: BaseException = cause
        else:
            error = getattr(contract, told["kind"])(
                told["reason"],
                env_id=self.env_id,
                index=int(told["index"] + self._edges[worker]),
                step=told["step"],
                seed=told["seed"],
            )
        error.__cause__ = WorkerFailure(told["traceback"]) if cause is error else cause
        return error

    def _end_processes(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.join(0.2)
            if process.is_alive():
                process.kill()
                process.join(CLOSE_SECONDS)
        self._workers = []
        if self._memory is not None:
            self._at_work, self._shared = self._at_work.copy(), []
            self._memory.close()
            self._memory.unlink()
            self._memory = None

    def __del__(self) -> None:
        if getattr(self, "_workers", None):
            self._end_processes()
