"""Computes the frames that an agent sees of one emulator (Sec. 8.2).

Rows of the screen that have not changed since the last step are neither converted to gray nor
shrunk again. `changed` marks the rows in which the picture may differ from that of the last frame.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.game import AtariGame
from trellis.envs.atari.kernels import UNKNOWN, pool, shrink, taps, update_gray

if TYPE_CHECKING:
    from ale_py import ALEInterface


@lru_cache
def _scratch(shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the array that screens are read into.

    All emulators of a process share it, which keeps it in the CPU's cache.
    """
    return np.zeros(shape, np.uint8)


@lru_cache
def _grays(rom: str) -> NDArray[np.uint16]:
    """Return the table of grays by colour number, which is filled from screens of the game."""
    return np.full(256, UNKNOWN, np.uint16)


class Pictures:
    """Converts the screens of an emulator to the frames of one environment.

    Args:
        ale: The emulator.
        game: The game and its preprocessing.
        arrays: Arrays of the environment; "frames" and "pooled" are written.
    """

    def __init__(self, ale: "ALEInterface", game: AtariGame, arrays: dict[str, NDArray[Any]]):
        height, width = ale.getScreenDims()
        shape = (height, width)
        self._ale, self._frames = ale, arrays["frames"]
        self._grays, self._now = _grays(game.rom), _scratch(shape)
        # The last screens of a step, each as colour numbers and as gray; black is 0 in both.
        self._last = np.zeros((2, *shape), np.uint8)
        self._previous = np.zeros_like(self._last) if game.frame.pools else self._last
        # The last frame in full size. The final frame of a game that ends within a step is computed
        # from it, so it is part of the state if two screens are pooled.
        self._picture = arrays["pooled"] if game.frame.pools else np.zeros(shape, np.uint8)
        self._changed = np.ones(height, np.bool_)
        self._shrink = shrinking(game, shape)

    def start(self, gray: NDArray[np.uint8] | None = None) -> None:
        """Fill the stack with the first frame, from `gray` or from the emulator's screen."""
        if gray is None:
            self._ale.getScreenGrayscale(self._picture)
        else:
            self._picture[...] = gray
        self.invalidate()
        self._shrink(self._picture, self._changed, self._frames)
        self._frames[:-1] = self._frames[-1]
        self._changed[:] = True

    def invalidate(self) -> None:
        """Discard the last screens, after emulator and frames were restored."""
        self._previous[...] = 0
        self._changed[:] = True

    def read(self, *, previous: bool = False) -> None:
        """Read the last screen of a step, or the previous one if two screens are pooled."""
        colours, gray = self._previous if previous else self._last
        self._ale.getScreen(self._now)
        if not update_gray(self._now, colours, gray, self._grays, self._changed):
            self._ale.getScreenGrayscale(gray)
            self._grays[self._now] = gray

    def append(self) -> None:
        """Append the frame of the screens that were read to the stack."""
        pool(self._previous[1], self._last[1], self._changed, self._picture)
        self._shrink(self._picture, self._changed, self._frames)

    def append_final(self) -> None:
        """Append the final frame of a game that ended before the second of two pooled screens."""
        np.maximum(self._picture, self._previous[1], out=self._picture)
        self._changed[:] = True
        self._shrink(self._picture, self._changed, self._frames)
        self._changed[:] = True


def shrinking(game: AtariGame, screen: tuple[int, int]) -> Callable[..., None]:
    """Return the function that appends the frame of a picture of this size.

    Its arguments are those of `shrink` that are not constants: picture, changed and frames.
    """
    frame = game.frame
    height, width = frame.middle or screen[0], screen[1]
    across, down = taps(width, frame.width), taps(height, frame.whole or frame.height)
    rows = slice(frame.above, frame.above + frame.height)
    top = down.first[rows] + np.uint64((screen[0] - height) // 2)
    unit = np.float32(1 / (across.total * down.total))
    constants = (across.first, across.weights, top, down.weights[:, :, rows].copy(), unit)
    return lambda picture, changed, frames: shrink(picture, changed, frames, *constants)
