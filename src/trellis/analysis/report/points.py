"""Averages the log of a run, as it streams by, into a bounded number of points.

Points cover equal numbers of iterations. When there are twice as many as wanted, neighbors merge.
So memory and the size of the report do not depend on the length of the log.
"""

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trellis.analysis.curves import INTERRUPTED, NEIGHBORS, TIMED_PARTS

CURVES = (
    "episode_return_mean",
    "eval_return_mean",
    "episode_length_mean",
    "kl",
    "step_fraction",
    "backtracks",
    "cg_residual",
    "explained_variance",
    "entropy",
    "surrogate_gain",
    "steps_per_second",
)
"""Metrics that the report plots."""
AXES = ("iteration", "steps", "seconds")
"""Horizontal axes; `seconds` is the training time so far."""
DIGITS = 5
"""Significant digits of the numbers in the report."""


class Points:
    """A bounded number of points of each curve.

    Args:
        limit: Smallest number of points at which neighbors merge into `limit`/2; even.
    """

    def __init__(self, limit: int):
        self._limit, self._width = limit, 1
        self._axes: list[list[float]] = []
        self._sums: list[list[float]] = []
        self._counts: list[list[int]] = []
        self._filled = 0
        self._clock = _Clock()

    def add(self, row: Mapping[str, float | None]) -> None:
        """Add one iteration."""
        if not self._axes or self._filled == self._width:
            if len(self._axes) == self._limit:
                self._merge()
            self._axes.append([])
            self._sums.append([0.0] * len(CURVES))
            self._counts.append([0] * len(CURVES))
            self._filled = 0
        self._filled += 1
        at = (row["iteration"] or 0, row["steps"] or 0, self._clock.advance(row))
        self._axes[-1] = [float(value) for value in at]
        for index, name in enumerate(CURVES):
            value = row.get(name)
            if value is not None:
                self._sums[-1][index] += value
                self._counts[-1][index] += 1

    def to_json(self) -> dict[str, list[float | None]]:
        """Return the axes and the curves that have values; a missing value is None."""
        curves: dict[str, list[float | None]] = {
            name: [_short(axes[index]) for axes in self._axes] for index, name in enumerate(AXES)
        }
        for index, name in enumerate(CURVES):
            values = [
                _short(sums[index] / counts[index]) if counts[index] else None
                for sums, counts in zip(self._sums, self._counts, strict=True)
            ]
            if any(value is not None for value in values):
                curves[name] = values
        return curves

    def _merge(self) -> None:
        self._axes = self._axes[1::2]
        self._sums = _pairs(self._sums)
        self._counts = _pairs(self._counts)
        self._width *= 2
        self._filled = self._width


class _Clock:
    """Training time so far; an iteration that was interrupted counts as those before it."""

    def __init__(self):
        self._recent: collections.deque[float] = collections.deque(maxlen=2 * NEIGHBORS)
        self._total = 0.0

    def advance(self, row: Mapping[str, float | None]) -> float:
        taken = sum(row.get(part) or 0.0 for part in TIMED_PARTS)
        if len(self._recent) >= NEIGHBORS:
            usual = sorted(self._recent)[len(self._recent) // 2]
            taken = usual if taken > INTERRUPTED * usual else taken
        self._recent.append(taken)
        self._total += taken
        return self._total


def _pairs(rows: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the sums of neighboring rows."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return [[a + b for a, b in zip(first, second, strict=True)] for first, second in pairs]


def _short(value: float) -> float | None:
    """Return a number with few digits, or None if it is not finite."""
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{DIGITS}g}")
