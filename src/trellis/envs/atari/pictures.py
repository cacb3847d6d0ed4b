"""What an agent sees of one emulator.

Rows of the screen that are as they were a step before are neither turned into gray nor shrunk
again: `changed` marks those in which the picture may differ from the one that the last frame shows.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.kernels import UNKNOWN, Shrinking, look, pool, taps
from trellis.envs.atari.screens import AtariGame


@lru_cache
def _scratch(shape: tuple[int, int]) -> NDArray[np.uint8]:
    """For a screen that is looked at once: one for all emulators of a process, so that it stays in
    the cache."""
    return np.zeros(shape, np.uint8)


@lru_cache
def _grays(rom: str) -> NDArray[np.uint16]:
    """The gray of each colour number, which emulators do not tell: it is learned by looking."""
    return np.full(256, UNKNOWN, np.uint16)


class _Screen:
    """What was shown at one moment of the last step, as colour numbers and in gray."""

    def __init__(self, shape: tuple[int, int]):
        self.colours = np.zeros(shape, np.uint8)
        self.gray = np.zeros(shape, np.uint8)

    def clear(self) -> None:
        """Black, which is colour 0."""
        self.colours[...] = 0
        self.gray[...] = 0


class Pictures:
    """Of an emulator, into the frames of its row."""

    def __init__(self, ale: Any, game: AtariGame, row: dict[str, NDArray[Any]]):
        shape = tuple(ale.getScreenDims())
        self._ale, self._frames = ale, row["frames"]
        self._grays, self._now = _grays(game.rom), _scratch(shape)
        self._last = _Screen(shape)
        self._before = _Screen(shape) if game.seen.pools else self._last
        # What the last frame shows, in full size; from it a game that ends within a step is shown,
        # so it is part of the state where two screens are pooled.
        self._picture = row["pooled"] if game.seen.pools else np.zeros(shape, np.uint8)
        self._changed = np.ones(shape[0], np.bool_)
        self._shrink = _shrinking(game, shape)

    def start(self, gray: NDArray[np.uint8] | None = None) -> None:
        """A stack of the first frame, of the emulator's screen or another."""
        if gray is None:
            self._ale.getScreenGrayscale(self._picture)
        else:
            self._picture[...] = gray
        self.forget()
        self._shrink(self._picture, self._changed, self._frames)
        self._frames[:-1] = self._frames[-1]
        self._changed[:] = True

    def forget(self) -> None:
        """The emulator is somewhere else, and its frames are not those that were made here."""
        self._before.clear()
        self._changed[:] = True

    def look_before(self) -> None:
        """At the last screen but one of a step, where two are pooled."""
        self._look(self._before)

    def look(self) -> None:
        """At the last screen of a step."""
        self._look(self._last)

    def _look(self, screen: _Screen) -> None:
        self._ale.getScreen(self._now)
        if not look(self._now, screen.colours, screen.gray, self._grays, self._changed):
            self._ale.getScreenGrayscale(screen.gray)
            self._grays[self._now] = screen.gray

    def show(self) -> None:
        """The next frame, of what was looked at."""
        pool(self._before.gray, self._last.gray, self._changed, self._picture)
        self._shrink(self._picture, self._changed, self._frames)

    def show_end(self) -> None:
        """The next frame where two screens are pooled and the game ended before the second."""
        np.maximum(self._picture, self._before.gray, out=self._picture)
        self._changed[:] = True
        self._shrink(self._picture, self._changed, self._frames)
        self._changed[:] = True


def _shrinking(game: AtariGame, screen: tuple[int, int]) -> Shrinking:
    seen = game.seen
    height, width = seen.middle or screen[0], screen[1]
    rows = taps(height, seen.whole or seen.height)[seen.above : seen.above + seen.height]
    return Shrinking(taps(width, seen.width), rows.moved((screen[0] - height) // 2))
