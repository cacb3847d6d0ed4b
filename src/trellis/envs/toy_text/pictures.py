"""Renders the states of Gymnasium's tabular toy texts, without pygame."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.classic.canvas import BLACK, BLUE, GOLD, GREEN, GREY, RED, Canvas, Colour

CELL = 48
"""Width of a cell in pixels."""
ICE: Colour = (225, 238, 250)
PLACES: tuple[Colour, ...] = ((220, 80, 80), (80, 180, 80), (225, 205, 80), (80, 110, 220))
"""Colours of Taxi's four places."""


def frozen_lake(source: Any, state: int) -> NDArray[np.uint8]:
    """Return a picture of FrozenLake: holes are dark, the goal is green, the agent is red."""
    cells = {b"H": BLUE, b"G": GREEN, b"S": GOLD}
    canvas = _grid([[cells.get(bytes(cell), ICE) for cell in row] for row in source.desc])
    return _agent(canvas, state, source.desc.shape)


def cliff_walking(source: Any, state: int) -> NDArray[np.uint8]:
    """Return a picture of CliffWalking: the cliff is grey, the goal is green, the agent is red."""
    rows, columns = source.shape
    colours = [[ICE] * columns for _ in range(rows)]
    colours[-1] = [GOLD, *[GREY] * (columns - 2), GREEN]
    return _agent(_grid(colours), state, source.shape)


def taxi(source: Any, state: int) -> NDArray[np.uint8]:
    """Return a picture of Taxi: places, walls, destination (frame), passenger and taxi."""
    row, column, passenger, destination = source.decode(state)
    rows, columns = 5, 5
    colours = [[ICE] * columns for _ in range(rows)]
    for (r, c), colour in zip(source.locs, PLACES, strict=True):
        colours[r][c] = colour
    canvas = _grid(colours)
    for r in range(rows):
        for c in range(columns - 1):
            if source.desc[1 + r, 2 * c + 2] != b":":
                canvas.rectangle(c + 0.95, rows - 1 - r, 0.1, 1.0, BLACK)
    r, c = source.locs[destination]
    canvas.disc(c + 0.5, rows - 0.5 - r, 0.15, BLACK)
    if passenger < 4:
        r, c = source.locs[passenger]
        canvas.disc(c + 0.25, rows - 0.25 - r, 0.14, RED)
    canvas.rectangle(column + 0.2, rows - 1 - row + 0.3, 0.6, 0.4, GOLD)
    if passenger == 4:
        canvas.disc(column + 0.5, rows - 0.5 - row, 0.14, RED)
    return canvas.picture


def _grid(colours: list[list[Colour]]) -> Canvas:
    rows, columns = len(colours), len(colours[0])
    # Video encoders need an even number of pixels, which a multiple of CELL is.
    canvas = Canvas(columns * CELL, rows * CELL, 0.0, 0.0, CELL)
    for r, row in enumerate(colours):
        for c, colour in enumerate(row):
            canvas.rectangle(c + 0.02, rows - 1 - r + 0.02, 0.96, 0.96, colour)
    return canvas


def _agent(canvas: Canvas, state: int, shape: tuple[int, int]) -> NDArray[np.uint8]:
    row, column = divmod(state, shape[1])
    canvas.disc(column + 0.5, shape[0] - 0.5 - row, 0.3, RED)
    return canvas.picture
