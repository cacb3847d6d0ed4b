"""Learning curves of kept runs, compared between variants of one task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trellis.analysis import figures
from trellis.reproduce.files import Record

LAST = 0.1
"""Part of the steps, at the end, that a final score is the mean of."""


def plot_variants(
    path: Path, curves: Mapping[str, Sequence[Record]], *, ylabel: str, of: str = "score"
) -> None:
    """Write one panel with a curve per variant, as PNG and SVG.

    Args:
        path: Path of the PNG.
        curves: Curves of the seeds, with `steps` and `of`, by the variant's name.
        ylabel: What the curves show.
        of: Name of the values in a curve.
    """
    with figures.open_grid(path, 1, svg=True) as (figure, (axis,)):
        for (name, seeds), color in zip(curves.items(), figures.COLORS, strict=False):
            if not seeds:
                continue
            x = np.linspace(*_common(seeds), 100)
            values = np.stack([np.interp(x, curve["steps"], curve[of]) for curve in seeds])
            low, high = values.min(axis=0), values.max(axis=0)
            figures.plot_band(axis, x, values.mean(axis=0), low, high, color=color, label=name)
        axis.set(xlabel="simulator steps", ylabel=ylabel)
        figures.format_counts(axis)
        axis.legend(frameon=False)
        figures.add_note(figure, "Line: mean over seeds. Band: lowest to highest seed.")


def _common(seeds: Sequence[Record]) -> tuple[float, float]:
    """Return the steps between which all curves have values."""
    return max(curve["steps"][0] for curve in seeds), min(curve["steps"][-1] for curve in seeds)


def last_score(curve: Record, of: str = "score") -> float:
    """Return the mean of a curve over the last part of its steps."""
    steps, values = np.asarray(curve["steps"]), np.asarray(curve[of])
    return float(values[steps > (1 - LAST) * steps[-1]].mean())


def steps_to(curve: Record, target: float, of: str = "score") -> float | None:
    """Return the steps at which a curve first reaches a value; None if it does not."""
    reached = np.flatnonzero(np.asarray(curve[of]) >= target)
    return float(curve["steps"][reached[0]]) if reached.size else None
