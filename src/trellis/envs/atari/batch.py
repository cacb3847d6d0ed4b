"""Atari games as a batch: emulators in worker processes, frames in shared memory (Sec. 8.2).

Observations are the last frames, (4, height, width) bytes, by one of the preprocessings of
`atari_screens.py`. Rewards are the game's own points, never clipped.

An episode is a function of its seed and actions, and what was played is written down as it is
played. So a worker that dies costs time alone: another takes its place, plays the episodes of its
rows again from their seeds (or from the states that they were restored from), and goes on where the
first one stopped, to the bit. The same puts back states of games whose emulator cannot be restored
(Q*bert, see `REPLAYED`).

The rows are two lanes, each with workers of its own, so that a sampler can have one of them play
while its policy looks at the other (`send`, `receive`).
"""

import functools
import itertools
import logging
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.atari.actions import ActionTable
from trellis.envs.atari.emulator import ELAPSED, LIVES, SINCE, STREAM
from trellis.envs.atari.processes import START_SECONDS, Processes, WorkerRaisedError
from trellis.envs.atari.screens import Actions, AtariGame, emulator
from trellis.envs.atari.worker import LOAD, PICTURE, REPLAY, RESET, SAVE, STEP, MemoryLayout
from trellis.envs.batch import (
    BatchEnv,
    EnvRaisedError,
    Observation,
    Restorability,
    Rows,
    Step,
    WorkerDiedError,
)

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 60.0
REPLAY_SECONDS = 0.01
"""Of patience for each step that is played again: far more than it takes."""
MOST_DEATHS = 3
"""In a row, at one command: then it is the game that kills its workers."""
LANES = 2
"""Whatever the number of cores: the samples of a seed depend on it."""


class About(NamedTuple):
    """What has to be asked of an emulator."""

    screen: tuple[int, int]
    minimal_actions: tuple[int, ...]


@functools.lru_cache
def about(game: AtariGame) -> About:
    """The size of the game's screen, and the actions that do something in it."""
    ale = emulator(game)
    return About(tuple(ale.getScreenDims()), tuple(a.value for a in ale.getMinimalActionSet()))


class AtariBatch(BatchEnv):
    """`num_envs` games in worker processes.

    Args:
        env_id: the id it goes by.
        rom: the game, as ale-py spells it.
        num_envs: rows of the batch.
        workers: processes that share the rows of a lane; 0 for one per core.
        actions: "minimal", those that do something in this game; "full", all 18; "factored", the
            paper's (horizontal, vertical, fire), which is all 18 as a product.
        max_episode_steps: of the agent's steps, besides the game's own limit of frames.
        **rules: see `AtariGame`.
    """

    restorability = Restorability.SERIALIZABLE
    most_rows = 64  # enough to keep every worker busy: loading the game takes 0.1 s a row

    def __init__(
        self,
        env_id: str,
        rom: str,
        num_envs: int,
        *,
        workers: int = 0,
        actions: Actions = "minimal",
        max_episode_steps: int | None = None,
        **rules: Any,
    ):
        self.game = AtariGame(rom, **rules)
        screen, minimal = about(self.game)
        self._actions = ActionTable(actions, minimal)
        super().__init__(
            env_id,
            num_envs,
            spaces.Box(0, 255, self.game.observation_shape, np.uint8),
            self._actions.space,
            max_episode_steps=max_episode_steps,
        )
        self.seconds_per_step = self.game.repeat / 60.0
        self.workers_replaced = 0
        """How often one has died."""
        lanes = min(LANES, num_envs)
        self.lanes = [slice(*edges) for edges in itertools.pairwise(_parts(0, num_envs, lanes))]
        """Rows that step by turns."""
        in_lane = min(workers or os.cpu_count() or 1, num_envs // lanes)
        self._workers_of = [range(i * in_lane, (i + 1) * in_lane) for i in range(lanes)]
        parts = [_parts(lane.start, lane.stop, in_lane)[:-1] for lane in self.lanes]
        self._edges = [*itertools.chain(*parts), num_envs]
        layout = MemoryLayout(self.game, num_envs, screen)
        self._processes = Processes(layout, self._edges)
        self._shared = layout.arrays(self._processes.memory)
        # Whatever is needed to bring a row back: where it began and how far it came.
        self._origin: list[tuple[Rows, int] | None] = [None] * num_envs
        self._begun = np.zeros(num_envs, bool)
        self._counters = self._shared["counters"].copy()

    @property
    def pids(self) -> list[int]:
        """Of the worker processes."""
        return self._processes.pids

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        self._shared["seed"][ids] = seeds
        self._command(RESET, self._choose(ids), beginning=ids)
        for index in ids:
            self._origin[index] = None
        return self._taken(ids)

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        rows = slice(0, self.num_envs)
        self._prepare(rows, actions, active)
        busy = np.logical_or.reduceat(active, self._edges[:-1])
        self._command(STEP, np.flatnonzero(busy).tolist())
        return self._outcome(rows)

    def send(self, lane: int, actions: NDArray[Any]) -> None:
        """Has all rows of a lane begin a step; until `receive`, nothing else may be asked of
        them."""
        rows = self.lanes[lane]
        count = rows.stop - rows.start
        if len(actions) != count:
            raise ValueError(f"lane {lane} needs {count} actions, got {len(actions)}")
        self._prepare(rows, self.map_actions(actions), True)
        self._tell(STEP, self._workers_of[lane])

    def receive(self, lane: int) -> Step:
        """What came of it, a row for each of the lane's."""
        self._finish(STEP, self._workers_of[lane])
        return self._end_step(self._outcome(self.lanes[lane]), self.lanes[lane], None)

    def _prepare(
        self, rows: slice, actions: NDArray[Any], active: NDArray[np.bool_] | bool
    ) -> None:
        shared = self._shared
        shared["action"][rows] = self._actions.numbers(actions)
        shared["active"][rows] = active
        for name in ("reward", "terminated", "truncated"):
            shared[name][rows] = 0

    def _outcome(self, rows: slice) -> Step:
        shared = self._shared
        self._counters[rows] = shared["counters"][rows]
        self.info = {"lives": self._counters[:, LIVES].copy()}
        names = ("frames", "reward", "terminated", "truncated")
        return Step(*(shared[name][rows].copy() for name in names))

    def _snapshot(self, ids: NDArray[np.int64]) -> Rows:
        shared = self._shared
        rows = {"frames": shared["frames"][ids], "counters": self._counters[ids]}
        if self.game.is_replayed:
            return {**rows, "history": shared["history"][ids]}
        self._command(SAVE, self._choose(ids))
        saved = ("pooled", "state", "state_size")
        return {**rows, **{name: shared[name][ids] for name in saved}}

    def _restore(self, ids: NDArray[np.int64], rows: Rows) -> Observation:
        counters, frames = np.asarray(rows["counters"]), np.asarray(rows["frames"])
        if self.game.is_replayed:
            self._shared["history"][ids] = rows["history"]
            self._shared["seed"][ids] = rows["seed"]
            self._shared["state_size"][ids] = 0
            self._shared["replay"][ids] = counters[:, SINCE]
            workers = self._choose(ids)
            self._command(REPLAY, workers, seconds=_patience(counters), beginning=ids)
            self._require_same(ids, counters)
            if not np.array_equal(self._shared["frames"][ids], frames):
                raise self.error(EnvRaisedError, "an episode played again was another one", ids)
        else:
            for name in ("state", "state_size"):
                self._shared[name][ids] = rows[name]
            self._command(LOAD, self._choose(ids), beginning=ids)
            for name in ("frames", "pooled", "counters"):
                self._shared[name][ids] = rows[name]
            self._shared["counters"][ids, SINCE] = 0
            for position, index in enumerate(ids):
                self._origin[index] = (rows, position)
        return self._taken(ids)

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self._shared["counters"][ids, STREAM] = seeds
        self._counters[ids, STREAM] = seeds

    def render(self, index: int) -> NDArray[np.uint8]:
        """The screen of row `index` in colour, (height, width, 3), as it was last drawn."""
        self._command(PICTURE, self._choose(np.array([index])))
        return self._shared["picture"].copy()

    def close(self) -> None:
        """Ends the processes."""
        self._processes.close()

    def _taken(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The observations of rows that have just begun an episode, or gone back in one."""
        self._begun[ids] = True
        self._counters[ids] = self._shared["counters"][ids]
        return self._shared["frames"][ids]

    def _choose(self, ids: NDArray[np.int64]) -> list[int]:
        """Marks rows for the next command; the workers that have any of them."""
        chosen = self._shared["chosen"]
        chosen[:] = False
        chosen[ids] = True
        return np.flatnonzero(np.logical_or.reduceat(chosen, self._edges[:-1])).tolist()

    def _command(
        self,
        command: bytes,
        workers: list[int],
        *,
        seconds: float = ANSWER_SECONDS,
        beginning: NDArray[np.int64] | None = None,
    ) -> None:
        """Has workers do something, all at once."""
        self._tell(command, workers)
        self._finish(command, workers, seconds=seconds, beginning=beginning)

    def _tell(self, command: bytes, workers: Sequence[int]) -> None:
        for worker in workers:
            self._processes.tell(worker, command)

    def _finish(
        self,
        command: bytes,
        workers: Sequence[int],
        *,
        seconds: float = ANSWER_SECONDS,
        beginning: NDArray[np.int64] | None = None,
    ) -> None:
        """Waits for what workers were told; those that died over it are replaced, brought to where
        they were (but for rows that are just `beginning`) and told again."""
        for deaths in range(MOST_DEATHS):
            # All have answered, or died, before anything is touched that they read.
            workers = self._dead(workers, seconds)
            if not workers:
                return
            if deaths < MOST_DEATHS - 1:
                for worker in workers:
                    self._bring_back(worker, beginning)
                self._tell(command, workers)
        raise self._died(workers[0])

    def _dead(self, workers: Sequence[int], seconds: float) -> list[int]:
        """Waits for them all; those that died."""
        return [worker for worker in workers if not self._answered(worker, seconds)]

    def _died(self, worker: int) -> WorkerDiedError:
        reason = f"worker process {worker} died {MOST_DEATHS} times at the same place"
        error = self.error(WorkerDiedError, reason, None, self._edges[worker])
        assert isinstance(error, WorkerDiedError)
        return error

    def _answered(self, worker: int, seconds: float) -> bool:
        try:
            return self._processes.wait_for(worker, seconds)
        except WorkerRaisedError as error:
            reason = f"worker process {worker} failed: {error}"
            raise self.error(EnvRaisedError, reason, None, self._edges[worker]) from None

    def _bring_back(self, worker: int, beginning: NDArray[np.int64] | None) -> None:
        """Another process in place of one that died, its rows where they were."""
        start, stop = self._edges[worker], self._edges[worker + 1]
        self.workers_replaced += 1
        code = self._processes.replace(worker)
        ids = np.arange(start, stop)
        lost = ids[self._begun[ids]]
        if beginning is not None:
            lost = np.setdiff1d(lost, beginning)
        logger.warning(
            "%s: worker process %d (environments %d to %d) ended with exit code %s; another takes"
            " its place and plays %d episodes again from where they began, %d steps in all",
            *(self.env_id, worker, start, stop - 1, code),
            *(len(lost), int(self._counters[lost, SINCE].sum())),
        )
        shared = self._shared
        chosen = shared["chosen"].copy()
        for _ in range(MOST_DEATHS):
            ready = self._processes.wait_for(worker, START_SECONDS)
            if ready and not self._play_again(worker, lost):
                shared["chosen"][:] = chosen
                return
            self._processes.replace(worker)
        raise self._died(worker)

    def _play_again(self, worker: int, lost: NDArray[np.int64]) -> list[int]:
        """Rows of one worker from where they began to where they were; the worker, if it died."""
        shared, counters = self._shared, self._counters[lost]
        shared["seed"][lost] = self.seeds[lost]
        shared["state_size"][lost] = 0
        for index in lost:
            origin = self._origin[index]
            if origin is not None:
                rows, position = origin
                for name in ("state", "state_size", "frames", "pooled", "counters"):
                    shared[name][index] = rows[name][position]
        shared["replay"][lost] = counters[:, SINCE]
        self._choose(lost)
        self._tell(REPLAY, [worker])
        died = self._dead([worker], _patience(counters))
        if not died:
            self._require_same(lost, counters)
        return died

    def _require_same(self, ids: NDArray[np.int64], counters: NDArray[np.int64]) -> None:
        """Of rows that were played again; then they get the random stream that they had last."""
        found = self._shared["counters"][ids]
        differ = (found != counters)[:, ELAPSED:].any(axis=1)
        if differ.any():
            row = int(np.argmax(differ))
            reason = f"an episode played again was another one: {found[row]}, not {counters[row]}"
            raise self.error(EnvRaisedError, reason, ids, row)
        self._shared["counters"][ids] = counters


def _parts(start: int, stop: int, count: int) -> list[int]:
    """The edges of nearly equal parts."""
    return [start + (stop - start) * i // count for i in range(count + 1)]


def _patience(counters: NDArray[np.int64]) -> float:
    """Seconds that playing again may take."""
    return ANSWER_SECONDS + REPLAY_SECONDS * float(counters[:, SINCE].sum())
