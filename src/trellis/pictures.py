"""Recognizes observations that are pictures, and brings them to (channels, height, width) bytes.

A `Box` of bytes in [0, 255] is a picture, or a stack of pictures, in one of these shapes. Networks
with convolutions see all of them as (channels, height, width).

| shape | example |
|---|---|
| (frames or colours, height, width) | Atari, PyTorch |
| (height, width, colours) | CarRacing, ViZDoom |
| (height, width) | one grayscale picture |
| (frames, height, width, colours) | `gymnasium.wrappers.FrameStackObservation` of colours |
| (frames, colours, height, width) | the same, colours first |

Pictures with a side longer than `LARGEST_SIDE` are reduced to the means of square blocks.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MOST_CHANNELS = 16
"""Largest number of frames times colours; it tells channels from heights and widths."""
WHITE = 255
"""Largest value of a pixel."""
SMALLEST_SIDE = 10
"""Smallest height and width of a picture: two convolutions reduce it to one pixel."""
LARGEST_SIDE = 128
"""Longest side of a picture that is not reduced."""

ORDERS: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((0, 1),),
    3: ((0, 1, 2), (2, 0, 1)),
    4: ((0, 3, 1, 2), (0, 1, 2, 3)),
}
"""Orders of the axes to try, by the number of axes."""

PictureRule = Literal["convolve", "frames-first", "flatten"]
"""Which boxes of bytes are pictures: all shapes above; (frames, height, width) alone and never
reduced; or none."""


@dataclass(frozen=True)
class PictureLayout:
    """Function from a batch of observations to pictures (batch, channels, height, width)."""

    space_shape: tuple[int, ...]
    """Shape of an observation."""
    axes: tuple[int, ...]
    """Order of its axes that puts height and width last."""
    block: int = 1
    """Side of the blocks whose mean is one pixel; 1 if pictures are not reduced."""

    @property
    def ordered(self) -> tuple[int, ...]:
        """Shape of an observation whose axes are in the order of `axes`."""
        return tuple(self.space_shape[axis] for axis in self.axes)

    @property
    def whole(self) -> tuple[int, int, int]:
        """Channels, height and width before the reduction."""
        *lead, height, width = self.ordered
        return math.prod(lead), height, width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a picture."""
        channels, height, width = self.whole
        return channels, height // self.block, width // self.block

    def __call__(self, observation: Any) -> NDArray[np.uint8]:
        """Return a batch of observations as pictures."""
        pictures = np.asarray(observation)
        pictures = pictures.transpose(0, *(axis + 1 for axis in self.axes))
        pictures = pictures.reshape(len(pictures), *self.whole)
        return pictures if self.block == 1 else _block_means(pictures, self.block)

    def invert(self, pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return observations that give these pictures; a reduced pixel fills its block."""
        large = pictures.repeat(self.block, axis=2).repeat(self.block, axis=3)
        rest = [(0, side % self.block) for side in self.whole[1:]]
        large = np.pad(large, [(0, 0), (0, 0), *rest], mode="edge")
        back = np.argsort(self.axes) + 1
        return large.reshape(-1, *self.ordered).transpose(0, *back.tolist())


def picture_layout(space: Any, rule: PictureRule = "convolve") -> PictureLayout | None:
    """Return how observations of a space become pictures; None if they are not pictures.

    Args:
        space: Observation space of one environment.
        rule: Which boxes of bytes are pictures.

    Example:
        >>> picture_layout(spaces.Box(0, 255, (96, 96, 3), np.uint8)).shape
        (3, 96, 96)
        >>> picture_layout(spaces.Box(0, 255, (240, 320, 3), np.uint8)).shape
        (3, 80, 106)
    """
    if rule == "flatten" or not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return None
    if not np.all(space.high == WHITE):  # for example a map of objects in 0 and 1
        return None
    if rule == "frames-first":
        first = (0, 1, 2)
        return PictureLayout(space.shape, first) if _fits(space.shape, first) else None
    for axes in ORDERS.get(len(space.shape), ()):
        if _fits(space.shape, axes):
            short, long = sorted(space.shape[axis] for axis in axes[-2:])
            block = min(-(-long // LARGEST_SIDE), short // SMALLEST_SIDE)
            return PictureLayout(space.shape, axes, block)
    return None


def _fits(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether a shape with its axes in this order is that of pictures."""
    if len(shape) != len(axes):
        return False
    *lead, height, width = (shape[axis] for axis in axes)
    return math.prod(lead) <= MOST_CHANNELS and min(height, width) >= SMALLEST_SIDE


def _block_means(pictures: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return the means of blocks of side × side pixels, rounded; halves are rounded up.

    Rows and columns that do not fill a block are dropped.
    """
    height, width = (size // side * side for size in pictures.shape[-2:])
    area = side * side
    total = np.full((*pictures.shape[:-2], height // side, width // side), area // 2, np.uint32)
    for row in range(side):
        for column in range(side):
            total += pictures[..., row:height:side, column:width:side]
    return (total // area).astype(np.uint8)
