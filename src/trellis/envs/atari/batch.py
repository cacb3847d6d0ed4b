"""Runs Atari games as a batch: emulators in worker processes, frames in shared memory (Sec. 8.2).

Observations are stacks of the last frames, bytes (4, height, width), from one of the preprocessings
in `game.py`. Rewards are the game's own points and are not clipped.

Snapshots hold the emulator's state. Some games cannot be restored from it (Q*bert, see `REPLAYED`).
Their snapshots hold the recorded actions instead, and `restore` replays them from the seed.

The environments form two lanes, each with its own workers. A sampler can step one lane while its
policy computes the actions of the other (`send`, `receive`).
"""

import functools
import itertools
import weakref
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.cores import usable_cores
from trellis.envs.atari.actions import ActionTable
from trellis.envs.atari.emulator import (
    ELAPSED,
    LAST_ACTION,
    LIVES,
    NUM_ACTIONS,
    SINCE,
    STATE_BYTES,
    STREAM,
    Emulator,
)
from trellis.envs.atari.game import AtariGame, emulator
from trellis.envs.atari.pool import EmulatorPool
from trellis.envs.atari.server import RESULTS, AtariServer
from trellis.envs.batch import BatchEnv, Observation, Restorability, Snapshot, Step
from trellis.envs.errors import EnvRaisedError
from trellis.envs.shared_arrays import split

MOST_LIVES = 255
"""Largest number of lives, which ALE reads from a byte."""
LANES = 2
"""Number of lanes. It does not depend on the number of cores, because samples depend on it."""


@functools.lru_cache
def screen_and_actions(game: AtariGame) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return the size of a game's screen, and the actions that have an effect in the game."""
    ale = emulator(game)
    height, width = ale.getScreenDims()
    return (height, width), tuple(action.value for action in ale.getMinimalActionSet())


class AtariBatch(BatchEnv):
    """Batch of copies of one Atari game, in worker processes.

    Args:
        env_id: Id of the environment.
        rom: Name of the game in ale-py.
        num_envs: Size of the batch.
        workers: Number of processes that share the environments of a lane; 0 for one per core.
        actions: "minimal" for the actions that have an effect in this game, "full" for all 18, or
            "factored" for the paper's (horizontal, vertical, fire), whose product is all 18.
        max_episode_steps: Time limit in steps, in addition to the game's own limit in screens.
        **rules: Fields of `AtariGame`.
    """

    restorability = Restorability.SERIALIZABLE
    most_rows = 64  # keeps every worker busy; more would cost time, loading a game takes 0.1 s

    def __init__(
        self,
        env_id: str,
        rom: str,
        num_envs: int,
        *,
        workers: int = 0,
        actions: Literal["minimal", "full", "factored"] = "minimal",
        max_episode_steps: int | None = None,
        **rules: Any,
    ):
        self.game = AtariGame(rom, **rules)
        screen, minimal = screen_and_actions(self.game)
        self._actions = ActionTable(actions, minimal)
        super().__init__(
            env_id,
            num_envs,
            spaces.Box(0, 255, self.game.observation_shape, np.uint8),
            self._actions.space,
            max_episode_steps=max_episode_steps,
        )
        self.seconds_per_step = self.game.repeat / 60.0
        lanes = min(LANES, num_envs)
        self.lanes = [slice(*edges) for edges in itertools.pairwise(split(0, num_envs, lanes))]
        """Environments of each lane; a sampler steps the lanes in turn."""
        in_lane = min(workers or usable_cores(), num_envs // lanes)
        self._workers_of = [range(i * in_lane, (i + 1) * in_lane) for i in range(lanes)]
        parts = [split(lane.start, lane.stop, in_lane)[:-1] for lane in self.lanes]
        edges = [*itertools.chain(*parts), num_envs]
        # A proxy, so that the pool does not keep an unused batch and its processes alive.
        error = functools.partial(BatchEnv.error, weakref.proxy(self))
        self._pool = EmulatorPool(env_id, self.game, screen, edges, error)
        self._shared = self._pool.shared

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._pool.workers.pids

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        self._shared["seed"][ids] = seeds
        self._pool.run(Emulator.reset, ids, starting=True)
        for index in ids:
            self._pool.origin[index] = None
        return self._shared["frames"][ids]

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        everyone, workers = slice(0, self.num_envs), self._pool.owners(active)
        self._prepare(everyone, actions, active)
        self._pool.send(AtariServer.step, workers)
        self._pool.receive(AtariServer.step, workers)
        return self._outcome(everyone)

    def send(self, lane: int, actions: NDArray[Any]) -> None:
        """Start a step of all environments of a lane; `receive` must follow.

        Args:
            lane: Index of the lane in `lanes`.
            actions: Actions in the form that the policy samples, one row for each environment of
                the lane.
        """
        part = self.lanes[lane]
        count = part.stop - part.start
        if len(actions) != count:
            raise ValueError(f"lane {lane} needs {count} actions, got {len(actions)}")
        self._prepare(part, self.map_actions(actions), True)
        self._pool.send(AtariServer.step, self._workers_of[lane])

    def receive(self, lane: int) -> Step:
        """Return the result of the step that `send` started, one row for each of the lane."""
        self._pool.receive(AtariServer.step, self._workers_of[lane])
        return self._end_step(self._outcome(self.lanes[lane]), self.lanes[lane], None)

    def _prepare(
        self, part: slice, actions: NDArray[Any], active: NDArray[np.bool_] | bool
    ) -> None:
        self._shared["action"][part] = self._actions.numbers(actions)
        self._shared["active"][part] = active
        for name in RESULTS:
            self._shared[name][part] = 0

    def _outcome(self, part: slice) -> Step:
        counters = self._pool.counters
        counters[part] = self._shared["counters"][part]
        self.info = {"lives": counters[:, LIVES].copy()}
        return Step(*(self._shared[name][part].copy() for name in ("frames", *RESULTS)))

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        shared = self._shared
        snapshot = {"frames": shared["frames"][ids], "counters": self._pool.counters[ids]}
        if self.game.is_replayed:
            return {**snapshot, "history": shared["history"][ids]}
        self._pool.run(Emulator.save, ids)
        saved = ("pooled", "state", "state_size")
        return {**snapshot, **{name: shared[name][ids] for name in saved}}

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        if self.game.is_replayed:
            self._restore_by_replay(ids, snapshot)
        else:
            self._write(ids, snapshot, "state", "state_size")
            self._pool.run(Emulator.load, ids, starting=True)
            self._write(ids, snapshot, "frames", "pooled", "counters")
            self._shared["counters"][ids, SINCE] = 0
            for row, index in enumerate(ids):
                self._pool.origin[index] = (snapshot, row)
        self._pool.counters[ids] = self._shared["counters"][ids]
        return self._shared["frames"][ids]

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` if a counter is out of range, or an error of the emulator."""
        steps = self.game.most_steps
        most = {ELAPSED: steps, SINCE: steps, LAST_ACTION: NUM_ACTIONS - 1, LIVES: MOST_LIVES}
        counters = np.asarray(snapshot["counters"])
        numbers = [(counters[:, name], limit) for name, limit in most.items()]
        if "state_size" in snapshot:
            numbers.append((np.asarray(snapshot["state_size"]), STATE_BYTES))
        if any(
            values.min() < 0 or values.max() > limit for values, limit in numbers if len(values)
        ):
            raise self.impossible()
        if not self.game.is_replayed:
            ids = np.arange(self.num_envs)
            self._write(ids, snapshot, "state", "state_size")
            self._pool.run(Emulator.check_state, ids, starting=True)

    def _restore_by_replay(self, ids: NDArray[np.int64], snapshot: Snapshot) -> None:
        counters = np.asarray(snapshot["counters"])
        self._write(ids, snapshot, "history", "seed")
        self._shared["state_size"][ids] = 0
        self._shared["replay"][ids] = counters[:, SINCE]
        steps = int(counters[:, SINCE].sum())
        self._pool.run(Emulator.replay, ids, starting=True, steps=steps)
        self._pool.require_same(ids, counters)
        if not np.array_equal(self._shared["frames"][ids], snapshot["frames"]):
            raise self.error(
                EnvRaisedError, "the replay of an episode gave other frames", int(ids[0])
            )

    def _write(self, ids: NDArray[np.int64], snapshot: Snapshot, *names: str) -> None:
        for name in names:
            self._shared[name][ids] = snapshot[name]

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self._shared["counters"][ids, STREAM] = seeds
        self._pool.counters[ids, STREAM] = seeds

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return the screen of environment `index` in colour, (height, width, 3)."""
        self._pool.run(Emulator.render, np.array([index]))
        return self._shared["picture"].copy()

    def close(self) -> None:
        """End the worker processes."""
        self._pool.workers.close()
