"""Converts screens to frames in compiled code and skips rows that have not changed (Sec. 8.2).

A screen is an array of colour numbers. `update_gray` finds the rows that differ from the last
screen and converts them to gray. `pool` computes the maximum of two screens in these rows. `shrink`
computes the rows of the frame that depend on them.

Shrinking averages over areas and gives the same bytes as OpenCV, which Gymnasium uses. A pixel of
the frame is an integer divided by a fixed integer, so float32 gives the same result in any order of
the sum. The exceptions are halves, which OpenCV rounds according to the error of its own sum. They
are summed again in OpenCV's order, columns before rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

UNKNOWN = 256
"""Entry of a table of grays for a colour that has not appeared yet."""


@dataclass(frozen=True)
class Taps:
    """Source pixels and weights of each target pixel along one axis."""

    first: NDArray[np.uint64]
    """Index of the first source pixel, (target,)."""
    weights: NDArray[np.float32]
    """Weights as integers with sum `total`, and as fractions with sum 1, (2, taps, target)."""
    total: int
    """Sum of the integer weights of a target pixel."""


@lru_cache
def taps(source: int, target: int) -> Taps:
    """Return the taps that shrink `source` pixels to `target`."""
    divisor = int(np.gcd(source, target))
    wide, narrow = source // divisor, target // divisor  # pixel widths in a common unit
    start = np.arange(target) * wide
    first, last = start // narrow, (start + wide - 1) // narrow
    count = int((last - first).max()) + 1
    first = np.minimum(first, source - count)
    edges = (first + np.arange(count)[:, None]) * narrow
    overlap = np.minimum(edges + narrow, start + wide) - np.maximum(edges, start)
    whole = np.maximum(overlap, 0)
    weights = np.stack([whole, whole / wide]).astype(np.float32)
    return Taps(first.astype(np.uint64), weights, wide)


def compiled(signature: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles a function and caches it on disk if that is possible."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(signature, cache=True)(function)
        except RuntimeError:  # neither this folder nor the user's is writable
            return njit(signature)(function)

    return decorate


@compiled("b1(u1[:, ::1], u1[:, ::1], u1[:, ::1], u2[::1], b1[::1])")
def update_gray(screen, before, gray, grays, changed):
    """Copy a screen to `before` and `gray`, and mark the rows that changed.

    Returns:
        Whether `grays` has the gray of every colour in the changed rows.
    """
    now, then = screen.view(np.uint64), before.view(np.uint64)
    found = np.uint16(0)
    for row in range(now.shape[0]):
        difference = np.uint64(0)
        for column in range(now.shape[1]):
            difference |= now[row, column] ^ then[row, column]
        if difference != 0:
            changed[row] = True
            for column in range(now.shape[1]):
                then[row, column] = now[row, column]
            for column in range(screen.shape[1]):
                value = grays[screen[row, column]]
                found |= value
                gray[row, column] = np.uint8(value)
    return found < UNKNOWN


@compiled("void(u1[:, ::1], u1[:, ::1], b1[::1], u1[:, ::1])")
def pool(one, other, changed, into):
    """Write the maximum of two screens to `into`, in the rows that changed."""
    for row in range(one.shape[0]):
        if changed[row]:
            for column in range(one.shape[1]):
                into[row, column] = max(one[row, column], other[row, column])


@compiled(
    "void(u1[:, ::1], b1[::1], u1[:, :, ::1], u8[::1], f4[:, :, ::1], u8[::1], f4[:, :, ::1], f4)"
)
def shrink(picture, changed, frames, left, across, top, down, unit):
    """Append the frame of a picture to `frames`, (stack, height, width), and drop the first frame.

    The picture may differ from the picture of the last frame only in the rows that `changed` marks.
    The function clears the marks. The other arguments are the taps of columns and rows, and the
    value of one unit of their weights.
    """
    height, width = frames.shape[1:]
    whole = frames.reshape(-1).view(np.uint64)
    one = height * width // 8
    for i in range(len(whole) - one):
        whole[i] = whole[i + one]
    frame = frames[-1]
    line = np.empty(picture.shape[1], np.float32)
    values = np.empty(width, np.float32)
    near, half = np.float32(unit / 4), np.float32(0.5)
    for y in range(height):
        touched = False
        for j in range(down.shape[1]):
            touched |= changed[top[y] + np.uint64(j)]
        if not touched:
            continue
        line[:] = 0
        for j in range(down.shape[1]):
            row, weight = picture[top[y] + np.uint64(j)], down[0, j, y]
            for x in range(len(row)):
                line[x] += np.float32(row[x]) * weight
        values[:] = 0
        for k in range(across.shape[1]):
            for x in range(width):
                values[x] += line[left[x] + np.uint64(k)] * across[0, k, x]
        halves = 0
        for x in range(width):
            value = values[x] * unit
            rounded = np.rint(value)
            halves += abs(abs(value - rounded) - half) < near
            frame[y, x] = np.uint8(np.int32(rounded))
        if halves == 0:
            continue
        for x in range(width):
            value = values[x] * unit
            if abs(abs(value - np.rint(value)) - half) < near:
                total = np.float32(0)
                for j in range(down.shape[1]):
                    part = np.float32(0)
                    for k in range(across.shape[1]):
                        pixel = picture[top[y] + np.uint64(j), left[x] + np.uint64(k)]
                        part += np.float32(pixel) * across[1, k, x]
                    total += part * down[1, j, y]
                frame[y, x] = np.uint8(np.int32(np.rint(total)))
    changed[:] = False
