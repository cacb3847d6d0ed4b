"""Runs emulators in worker processes and replaces workers that die.

An episode is a function of its seed and actions, and all actions are recorded. If a worker dies, a
replacement replays the episodes of its environments from their seeds, or from the snapshots that
they were restored from. It then continues bit for bit.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.emulator import ELAPSED, SINCE, Emulator
from trellis.envs.atari.game import AtariGame
from trellis.envs.atari.server import AtariServer, shared_arrays
from trellis.envs.batch import Snapshot
from trellis.envs.errors import EnvError, EnvRaisedError, WorkerDiedError
from trellis.envs.workers import START_SECONDS, WorkerFailedError, WorkerLostError, Workers

logger = logging.getLogger(__name__)

Command = Callable[[Emulator], None]
"""A method of `Emulator`."""
Call = Callable[[AtariServer], None]
"""A method of `AtariServer`."""
ANSWER_SECONDS = 60.0
"""Time limit for an answer of a worker."""
REPLAY_SECONDS = 0.01
"""Additional time limit for each step of a replay, which is much faster."""
MOST_DEATHS = 3
"""Number of consecutive deaths at one command after which the pool raises an error."""
# A worker uses one core, and BLAS threads would only use memory.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class EmulatorPool:
    """Pool of worker processes that run the emulators of a batch.

    Args:
        env_id: Id of the environment, for messages.
        game: The game and its rules.
        screen: Height and width of the game's screen.
        edges: Index of the first environment of each worker, and one past the last environment.
        error: Function that returns an error about an environment (`BatchEnv.error`).
    """

    def __init__(
        self,
        env_id: str,
        game: AtariGame,
        screen: tuple[int, int],
        edges: list[int],
        error: Callable[..., EnvError],
    ):
        self.env_id, self.edges, self._error = env_id, edges, error
        num_envs = edges[-1]
        layout = shared_arrays(game, num_envs, screen)
        self.workers = Workers(
            AtariServer,
            [(game, num_envs, screen, *part) for part in itertools.pairwise(edges)],
            answer_seconds=ANSWER_SECONDS,
            environment=ENVIRONMENT,
        )
        self.shared = layout.views(self.workers.allocate(layout.size))
        self.counters = self.shared["counters"].copy()
        """Counters of all environments after their last command."""
        self.origin: list[tuple[Snapshot, int] | None] = [None] * num_envs
        """Start of each episode for a replay: a row of a snapshot, or None for its seed."""
        self._started = np.zeros(num_envs, bool)
        try:
            self.workers.start()
            for worker in range(len(edges) - 1):
                if not self._receive(worker, seconds=START_SECONDS):
                    raise OSError(
                        f"worker process {worker} ended while it was starting: see its error"
                        " output above"
                    )
        except BaseException:
            self.workers.close()
            raise

    def run(
        self, command: Command, ids: NDArray[np.int64], *, starting: bool = False, steps: int = 0
    ) -> None:
        """Run a command for the environments `ids`.

        Args:
            command: A method of `Emulator`.
            ids: Indices of the environments.
            starting: Whether the command sets their states, so that a replacement of a worker
                need not replay them.
            steps: Number of steps that the command replays, which extends the time limit.
        """
        workers = self._choose(ids)
        call = functools.partial(AtariServer.each, command=command)
        self.send(call, workers)
        self.receive(call, workers, steps=steps, starting=ids if starting else None)
        if starting:
            self._started[ids] = True
            self.counters[ids] = self.shared["counters"][ids]

    def send(self, call: Call, workers: Sequence[int]) -> None:
        """Send workers a method of the server to call; `receive` must follow."""
        for worker in workers:
            self.workers.send(worker, call)

    def receive(
        self,
        call: Call,
        workers: Sequence[int],
        *,
        steps: int = 0,
        starting: NDArray[np.int64] | None = None,
    ) -> None:
        """Wait until workers have run a method; replace workers that died, which run it again.

        Args:
            call: The method that `send` sent.
            workers: Indices of the workers.
            steps: Number of steps that the method replays, which extends the time limit.
            starting: Environments whose states the method sets. A replacement replays the episodes
                of all its other environments.
        """
        for deaths in range(MOST_DEATHS):
            # All workers must have answered or died before the memory that they read changes.
            workers = [worker for worker in workers if not self._receive(worker, steps)]
            if not workers:
                return
            if deaths < MOST_DEATHS - 1:
                for worker in workers:
                    self._replace(worker, starting)
                self.send(call, workers)
        raise self._died(workers[0])

    def require_same(self, ids: NDArray[np.int64], counters: NDArray[np.int64]) -> None:
        """Check the counters after a replay, and restore the environments' random streams."""
        found = self.shared["counters"][ids]
        differ = (found != counters)[:, ELAPSED:].any(axis=1)
        if differ.any():
            row = int(np.argmax(differ))
            reason = (
                f"the replay of an episode ended with counters {found[row]} instead of"
                f" {counters[row]}"
            )
            raise self._error(EnvRaisedError, reason, int(ids[row]))
        self.shared["counters"][ids] = counters

    def _choose(self, ids: NDArray[np.int64]) -> list[int]:
        """Mark environments for the next command and return the workers that have any of them."""
        chosen = self.shared["chosen"]
        chosen[:] = False
        chosen[ids] = True
        return self.owners(chosen)

    def owners(self, mask: NDArray[np.bool_]) -> list[int]:
        """Return the workers that have any environment in `mask`."""
        return np.flatnonzero(np.logical_or.reduceat(mask, self.edges[:-1])).tolist()

    def _receive(self, worker: int, steps: int = 0, seconds: float = ANSWER_SECONDS) -> bool:
        """Wait for a worker that replays `steps` steps; return whether it survived."""
        try:
            self.workers.receive(worker, seconds + REPLAY_SECONDS * steps)
        except WorkerLostError:
            return False
        except WorkerFailedError as failure:
            reason = f"worker process {worker} failed: {failure}"
            raise self._error(EnvRaisedError, reason, self.edges[worker]) from None
        return True

    def _died(self, worker: int) -> EnvError:
        reason = f"worker process {worker} died {MOST_DEATHS} times at the same command"
        return self._error(WorkerDiedError, reason, self.edges[worker])

    def _replace(self, worker: int, starting: NDArray[np.int64] | None) -> None:
        """Start a process in place of one that died, and replay its environments."""
        start, stop = self.edges[worker], self.edges[worker + 1]
        exit_code = self.workers.replace(worker)
        ids = np.arange(start, stop)
        lost = ids[self._started[ids]]
        if starting is not None:
            lost = np.setdiff1d(lost, starting)
        steps = int(self.counters[lost, SINCE].sum())
        logger.warning(
            "%s: worker process %d (environments %d to %d) ended with exit code %s. A replacement"
            " replays %d episodes from their start, %d steps in all.",
            *(self.env_id, worker, start, stop - 1, exit_code, len(lost), steps),
        )
        chosen = self.shared["chosen"].copy()
        for _ in range(MOST_DEATHS):
            started = self._receive(worker, seconds=START_SECONDS)
            if started and self._replay(worker, lost, steps):
                self.shared["chosen"][:] = chosen
                return
            self.workers.replace(worker)
        raise self._died(worker)

    def _replay(self, worker: int, lost: NDArray[np.int64], steps: int) -> bool:
        """Replay environments of one worker to their last state; return whether it survived."""
        shared, counters = self.shared, self.counters[lost]
        shared["state_size"][lost] = 0
        for index in lost:
            origin = self.origin[index]
            if origin is not None:
                snapshot, row = origin
                for name in ("state", "state_size", "frames", "pooled", "counters"):
                    shared[name][index] = snapshot[name][row]
        shared["replay"][lost] = counters[:, SINCE]
        self._choose(lost)
        self.send(functools.partial(AtariServer.each, command=Emulator.replay), [worker])
        if not self._receive(worker, steps):
            return False
        self.require_same(lost, counters)
        return True
