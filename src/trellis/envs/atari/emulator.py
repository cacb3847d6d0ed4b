"""One game of Atari in one emulator: reset, step, save, load, play again.

All that the future depends on is the emulator's own state and what lies in the row's arrays, which
are parts of memory that is shared with the parent process. An episode is a function of its seed and
actions. The seed settles how many frames of doing nothing it starts with, by the same draw as
Gymnasium's wrapper, and with sticky actions when they stick; those draws are a function of (stream,
step), so that there is no generator whose state would have to be kept.

A step is written down as one byte, `18 · frames that stuck + action`: played again, it does the
same whatever was drawn.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.screens import RELOADED, AtariGame, emulator, load
from trellis.envs.seeding import uniform

NUM_ACTIONS = 18
STATE_BYTES = 20 * 1024
"""Room for a saved emulator (about 14 kB, of which half are its random numbers)."""
# The counters of a row.
STREAM, ELAPSED, SINCE, LAST_ACTION, LIVES = range(5)
STICKY_STREAMS = 2**17
"""More than an episode has steps."""

Row = dict[str, NDArray[Any]]


def row_fields(game: AtariGame, screen: tuple[int, int]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """What the memory of a row holds: name -> (shape, dtype)."""
    return {
        "frames": (game.observation_shape, np.uint8),
        # The last picture before it was made small; part of the state where two screens are pooled.
        "pooled": (screen if game.seen.pools else (0, 0), np.uint8),
        "counters": ((5,), np.int64),
        # What was played since the reset, or since a saved state was loaded.
        "history": ((game.most_steps,), np.uint8),
        "state": ((STATE_BYTES,), np.uint8),
        "state_size": ((), np.int64),
        "seed": ((), np.int64),
        "chosen": ((), np.bool_),
        "replay": ((), np.int64),
        "active": ((), np.bool_),
        "action": ((), np.uint8),
        "reward": ((), np.float64),
        "terminated": ((), np.bool_),
        "truncated": ((), np.bool_),
    }


class Emulator:
    """A row of the batch."""

    def __init__(self, game: AtariGame, row: Row):
        from ale_py import roms

        # Here, so that the parent process, which needs this file's layout, does not load numba.
        from trellis.envs.atari.pictures import Pictures

        self._game, self._row = game, row
        self._counters, self._history = row["counters"], row["history"]
        self._path = roms.get_rom_path(game.rom)
        self._ale = emulator(game)
        self._pictures = Pictures(self._ale, game, row)
        self._pools, self._repeat = game.seen.pools, game.repeat
        self._end_on_lost_life = game.end_on_lost_life
        # Putting the first state back is exact where restoring is, and fast: the game's own reset
        # leaves traces of what was played in some (Beam Rider), and loading takes 0.1 s.
        self._start = None if game.is_replayed else self._ale.cloneState(include_rng=True)
        self._first_screen = self._ale.getScreenGrayscale()

    def reset(self, seed: int) -> None:
        """A new episode."""
        noops = self._draw_noops(seed)
        self._restart()
        drawn = False
        for _ in range(noops):
            self._ale.act(0)
            drawn = not self._ale.game_over()
            if not drawn:
                self._restart()
        # Restoring does not draw.
        self._pictures.start(None if drawn or self._start is None else self._first_screen)
        self._counters[:] = 0
        self._counters[STREAM] = seed
        self._counters[LIVES] = self._ale.lives()

    def _restart(self) -> None:
        if self._start is not None:
            self._ale.restoreState(self._start)
        elif self._game.rom in RELOADED:
            load(self._ale, self._game, self._path)
        else:
            self._ale.reset_game()

    def _draw_noops(self, seed: int) -> int:
        if not self._game.noop_max:
            return 0
        # As Gymnasium does it: the same seed, the same start.
        of_python = int(np.random.SeedSequence(seed).generate_state(2)[0])
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(of_python)))
        return int(rng.integers(1, self._game.noop_max + 1))

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Holds an action for some frames: reward, terminated, truncated."""
        code = NUM_ACTIONS * self._draw_sticks() + action
        self._history[self._counters[SINCE]] = code
        return self._play(code, look=True)

    def _draw_sticks(self) -> int:
        """For how many frames the action before goes on."""
        probability = self._game.sticky_actions
        if not probability:
            return 0
        stream = self._counters[STREAM] * STICKY_STREAMS + self._counters[ELAPSED]
        draws = uniform(np.array([stream]), self._game.repeat + 1, 0.0, 1.0)[0]
        draws[-1] = 1.0
        return int(np.argmax(draws >= probability))

    def replay(self, count: int) -> None:
        """Plays the first `count` steps of the history; only what will be seen is looked at."""
        history = self._history[:count].tolist()
        unseen = count - self._game.frame_stack
        for index, code in enumerate(history):
            self._play(code, look=index >= unseen)

    def _play(self, code: int, *, look: bool) -> tuple[float, bool, bool]:
        sticks, action = divmod(code, NUM_ACTIONS)
        ale, pictures, repeat = self._ale, self._pictures, self._repeat
        _, elapsed, since, before, lives = self._counters.tolist()
        reward, terminated, truncated = 0.0, False, False
        for t in range(repeat):
            reward += ale.act(before if t < sticks else action)
            if self._end_on_lost_life:
                terminated, lives = ale.lives() < lives, ale.lives()
            if ale.game_over():
                terminated = terminated or ale.game_over(with_truncation=False)
                truncated = ale.game_truncated()
            if terminated or truncated:
                break
            if look and self._pools and t == repeat - 2:
                pictures.look_before()
        if look:
            if self._pools and (terminated or truncated):
                pictures.show_end()
            else:
                pictures.look()
                pictures.show()
        last = action if sticks < repeat else before
        self._counters[ELAPSED:] = elapsed + 1, since + 1, last, ale.lives()
        return reward, terminated, truncated

    def save(self) -> None:
        """Writes the emulator's state down."""
        state = np.frombuffer(self._ale.cloneState(include_rng=True).serialize(), np.uint8)
        self._row["state_size"][0] = len(state)
        self._row["state"][: len(state)] = state

    def load(self) -> None:
        """Takes the state that was written down; the arrays of the row are the parent's to fill."""
        import ale_py

        size = int(self._row["state_size"][0])
        self._ale.restoreState(ale_py.ALEState(self._row["state"][:size].tobytes()))
        self._pictures.forget()
        self._counters[SINCE] = 0

    def picture(self) -> NDArray[np.uint8]:
        """The screen in colour."""
        return self._ale.getScreenRGB()
