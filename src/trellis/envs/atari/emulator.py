"""Runs one Atari game in one emulator: reset, step, save, load and replay (Sec. 8.2).

The future depends only on the emulator's own state and on the arrays of the environment, which are
in the memory that worker and parent share. An episode is a function of its seed and actions. The
seed determines the number of screens without action at the start, by the same random number as in
Gymnasium's wrapper. It also determines which actions are sticky, as a function of (stream, step).
So there is no generator whose state would have to be saved.

A step is recorded as one byte, `18 · number of sticky screens + action`, so a replay is exact.
"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.game import RELOADED, AtariGame, emulator, load_rom
from trellis.envs.shared_arrays import Fields
from trellis.rng import uniform

NUM_ACTIONS = 18
"""Number of actions of the ALE."""
STATE_BYTES = 20 * 1024
"""Space for a saved emulator, which needs about 14 kB; half of that are its random numbers."""
MORE_BYTES = 64 << 20
"""Memory that loading a state from a checkpoint may allocate."""
# Indices of the counters of an environment.
STREAM, ELAPSED, SINCE, LAST_ACTION, LIVES = range(5)
STICKY_STREAMS = 2**17
"""Number of random streams per seed; more than the steps of an episode."""


def environment_fields(game: AtariGame, screen: tuple[int, int]) -> Fields:
    """Return shape and data type of the arrays that each environment has in shared memory."""
    return {
        "frames": (game.observation_shape, np.uint8),
        # The last frame in full size; it is part of the state if two screens are pooled.
        "pooled": (screen if game.frame.pools else (0, 0), np.uint8),
        "counters": ((5,), np.int64),
        # The recorded steps since the reset, or since a saved state was loaded.
        "history": ((game.most_steps,), np.uint8),
        "state": ((STATE_BYTES,), np.uint8),
        "action": ((), np.uint8),
        "reward": ((), np.float64),
        **dict.fromkeys(("state_size", "seed", "replay"), ((), np.int64)),
        **dict.fromkeys(("chosen", "active", "terminated", "truncated"), ((), np.bool_)),
    }


class Emulator:
    """Emulator with the game of one environment.

    Args:
        game: The game and its rules.
        arrays: Arrays of the environment in shared memory; scalars are arrays of length 1.
        picture: Array that the screen is rendered to.
    """

    def __init__(
        self, game: AtariGame, arrays: dict[str, NDArray[Any]], picture: NDArray[np.uint8]
    ):
        from ale_py import roms

        # Imported here, so that the parent process, which needs the fields, does not load numba.
        from trellis.envs.atari.pictures import Pictures

        self._game, self._arrays, self._picture = game, arrays, picture
        self._counters, self._history = arrays["counters"], arrays["history"]
        self._path = roms.get_rom_path(game.rom)
        self._ale = emulator(game)
        self._pictures = Pictures(self._ale, game, arrays)
        self._pools, self._repeat = game.frame.pools, game.repeat
        # A restore of the first state is fast, and exact for games that can be restored. The
        # game's own reset keeps traces of the last episode in some games (Beam Rider), and loading
        # the ROM takes 0.1 s.
        self._start = None if game.is_replayed else self._ale.cloneState(include_rng=True)
        self._first_screen = self._ale.getScreenGrayscale()

    def reset(self) -> None:
        """Start a new episode from the seed in the arrays."""
        seed = int(self._arrays["seed"][0])
        noops = self._sample_noops(seed)
        self._restart()
        has_screen = False
        for _ in range(noops):
            self._ale.act(0)
            has_screen = not self._ale.game_over()
            if not has_screen:
                self._restart()
        # ALE does not render the screen of a restored state.
        self._pictures.start(None if has_screen or self._start is None else self._first_screen)
        self._counters[:] = 0
        self._counters[STREAM] = seed
        self._counters[LIVES] = self._ale.lives()

    def _restart(self) -> None:
        if self._start is not None:
            self._ale.restoreState(self._start)
        elif self._game.rom in RELOADED:
            load_rom(self._ale, self._game, self._path)
        else:
            self._ale.reset_game()

    def _sample_noops(self, seed: int) -> int:
        if not self._game.noop_max:
            return 0
        # The same computation as in Gymnasium, so that the same seed gives the same start.
        of_python = int(np.random.SeedSequence(seed).generate_state(2)[0])
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(of_python)))
        return int(rng.integers(1, self._game.noop_max + 1))

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Repeat an action for some screens; return reward, terminated and truncated."""
        code = NUM_ACTIONS * self._sample_sticks() + action
        self._history[self._counters[SINCE]] = code
        return self._play(code, visible=True)

    def _sample_sticks(self) -> int:
        """Return the number of screens for which the previous action is repeated."""
        probability = self._game.sticky_actions
        if not probability:
            return 0
        stream = self._counters[STREAM] * STICKY_STREAMS + self._counters[ELAPSED]
        samples = uniform(np.array([stream]), self._game.repeat + 1, 0.0, 1.0)[0]
        samples[-1] = 1.0
        return int(np.argmax(samples >= probability))

    def replay(self) -> None:
        """Replay the recorded steps, from the saved state or, without one, from the seed.

        Only the frames of the final stack are computed.
        """
        if self._arrays["state_size"]:
            self.load()
        else:
            self.reset()
        count = int(self._arrays["replay"][0])
        first_visible = count - self._game.frame_stack
        for index, code in enumerate(self._history[:count].tolist()):
            self._play(code, visible=index >= first_visible)

    def _play(self, code: int, *, visible: bool) -> tuple[float, bool, bool]:
        sticks, action = divmod(code, NUM_ACTIONS)
        ale, pictures, repeat = self._ale, self._pictures, self._repeat
        _, elapsed, since, before, lives = self._counters.tolist()
        reward, terminated, truncated = 0.0, False, False
        for t in range(repeat):
            reward += ale.act(before if t < sticks else action)
            if self._game.end_on_lost_life:
                terminated, lives = ale.lives() < lives, ale.lives()
            if ale.game_over():
                terminated = terminated or ale.game_over(with_truncation=False)
                truncated = ale.game_truncated()
            if terminated or truncated:
                break
            if visible and self._pools and t == repeat - 2:
                pictures.read(previous=True)
        if visible and self._pools and (terminated or truncated):
            pictures.append_final()
        elif visible:
            pictures.read()
            pictures.append()
        last = action if sticks < repeat else before
        self._counters[ELAPSED:] = elapsed + 1, since + 1, last, ale.lives()
        return reward, terminated, truncated

    def save(self) -> None:
        """Write the emulator's state into the arrays of the environment."""
        state = np.frombuffer(self._ale.cloneState(include_rng=True).serialize(), np.uint8)
        self._arrays["state_size"][0] = len(state)
        self._arrays["state"][: len(state)] = state

    def check_state(self) -> None:
        """Load a state that may come from anywhere, with little memory.

        A forged length would make the emulator fill gigabytes.
        """
        with _little_memory():
            self.load()

    def load(self) -> None:
        """Restore the saved state; the parent restores the arrays of the environment."""
        import ale_py

        size = int(self._arrays["state_size"][0])
        try:
            state = ale_py.ALEState(self._arrays["state"][:size].tobytes())
            self._ale.restoreState(state)
        except (RuntimeError, SystemError, ValueError, MemoryError) as error:
            raise ValueError("the emulator does not accept the saved state") from error
        self._pictures.invalidate()
        self._counters[SINCE] = 0

    def render(self) -> None:
        """Write the screen in colour to the picture array."""
        self._picture[...] = self._ale.getScreenRGB()


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    """Let this process allocate no more than `MORE_BYTES` in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
