"""Draws simple pictures with NumPy, so that small environments render without pygame."""

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
"""Red, green and blue, each from 0 to 255."""
BLACK: Colour = (0, 0, 0)
GREY: Colour = (120, 120, 120)
RED: Colour = (204, 77, 77)
GOLD: Colour = (202, 152, 101)
BLUE: Colour = (70, 110, 180)
GREEN: Colour = (60, 150, 90)


class Canvas:
    """A white picture with coordinates in the environment's own units, the y axis upwards.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        left: Coordinate of the left edge.
        bottom: Coordinate of the lower edge.
        scale: Pixels per unit.
    """

    def __init__(self, width: int, height: int, left: float, bottom: float, scale: float):
        self.picture = np.full((height, width, 3), 255, np.uint8)
        self._x = (np.arange(width)[None, :] + 0.5) / scale + left
        self._y = (height - np.arange(height)[:, None] - 0.5) / scale + bottom

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        """Fill a rectangle whose lower left corner is (x, y)."""
        across = (self._x >= x) & (self._x < x + width)
        self.picture[across & (self._y >= y) & (self._y < y + height)] = colour

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Fill a disc around (x, y)."""
        self.picture[(self._x - x) ** 2 + (self._y - y) ** 2 < radius**2] = colour

    def line(
        self, start: tuple[float, float], end: tuple[float, float], width: float, colour: Colour
    ) -> None:
        """Fill a line with round ends."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = max(dx * dx + dy * dy, 1e-12)
        along = ((self._x - start[0]) * dx + (self._y - start[1]) * dy) / length
        along = np.clip(along, 0.0, 1.0)
        apart = (self._x - start[0] - along * dx) ** 2 + (self._y - start[1] - along * dy) ** 2
        self.picture[apart < (width / 2) ** 2] = colour

    def curve(self, height: NDArray[np.float64], width: float, colour: Colour) -> None:
        """Fill a curve that has a height for every column of the picture."""
        self.picture[np.abs(self._y - height[None, :]) < width / 2] = colour

    @property
    def columns(self) -> NDArray[np.float64]:
        """Horizontal coordinate of every column of the picture."""
        return self._x[0]
