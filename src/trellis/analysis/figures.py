"""Matplotlib for every figure: one style, saving, bands and axes.

    with figures.open_figure(path, columns=2) as (figure, axes):
        figures.plot_band(axes[0], x, mean, low, high, color=COLORS[0], label="TRPO")

matplotlib is optional and loads when the first figure is plotted.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from trellis.safe_files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with colour blindness can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
MARGIN = 0.12
"""Space above and below the plotted means, as a part of their range."""


@contextlib.contextmanager
def open_figure(
    path: Path,
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float],
    dpi: int = 110,
    boxed: bool = False,
) -> "Iterator[tuple[Figure, np.ndarray]]":
    """Yield a figure and its (rows, columns) array of axes; save it to `path` at the end.

    Args:
        path: File to write. Its folder is created.
        rows: Number of panels from top to bottom.
        columns: Number of panels from left to right.
        size: Width and height in inches.
        dpi: Pixels per inch.
        boxed: Keep the top and right edges of the panels.
    """
    try:
        import matplotlib
    except ImportError as missing:
        raise ImportError("plots need matplotlib: pip install 'trellis-rl[plots]'") from missing
    matplotlib.use("Agg")  # Needs no display.
    from matplotlib import pyplot

    with pyplot.rc_context(None if boxed else STYLE):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained"
        )
        try:
            yield figure, axes
            path.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            figure.savefig(buffer, dpi=dpi, format=path.suffix[1:] or None)
            # A link of this name, as a run folder may have, is replaced and not followed.
            write_file(path.parent, path.name, buffer.getvalue())
        finally:
            pyplot.close(figure)


def plot_band(
    axis: "Axes",
    x: ArrayLike,
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    color: str,
    alpha: float = 0.15,
    style: str = "-",
    **line: Any,
) -> None:
    """Plot a mean as a line and its interval as a shaded band."""
    axis.plot(x, mean, style, color=color, **line)
    axis.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0)


def format_counts(axis: "Axes") -> None:
    """Label a horizontal axis of counts as 1M or 200k, starting at 0."""
    from matplotlib.ticker import EngFormatter

    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def limits(means: Sequence[float]) -> tuple[float, float] | None:
    """Return limits that show every mean; the band of a few seeds may be cut off."""
    if not means:
        return None
    margin = MARGIN * (max(means) - min(means)) or 1.0
    return min(means) - margin, max(means) + margin
