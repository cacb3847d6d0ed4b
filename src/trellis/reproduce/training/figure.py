"""The learning curves of the modern presets, from curves.json alone."""

from collections.abc import Mapping
from pathlib import Path

from trellis.analysis import figures
from trellis.reproduce.files import Record

COLUMNS = 3
"""Number of panels from left to right."""
EVERY = 2
"""Interval of the points that are plotted, which keeps the file small."""


def plot(curves: Mapping[str, Record], path: Path) -> None:
    """Write a panel per task, as PNG and SVG.

    Args:
        curves: Mean return over seeds and its 95% band, by environment.
        path: Path of the PNG.
    """
    columns = min(COLUMNS, len(curves))
    with figures.open_grid(path, len(curves), columns=columns, svg=True) as (figure, axes):
        for axis, (env, curve) in zip(axes, curves.items(), strict=True):
            # Counted from the end, so that the last point is plotted.
            line = {name: curve[name][::-EVERY][::-1] for name in ("x", "mean", "low", "high")}
            figures.plot_band(axis, **line, color=figures.COLORS[0])
            axis.set(title=env, xlabel="simulator steps", ylim=figures.limits(curve["mean"]))
            figures.format_counts(axis)
        figure.supylabel("mean return of training episodes")
        figures.add_note(figure, "Band: 95% interval over seeds.")
