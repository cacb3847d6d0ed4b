"""Matplotlib for every figure: one style, grids of panels, bands, direct labels, PNG and SVG.

    with figures.open_grid(path, panels=9, svg=True) as (figure, axes):
        figures.plot_band(axes[0], x, mean, low, high, color=COLORS[0])

A figure is eight inches wide, which is 800 pixels on a page at 100 pixels an inch. Its fonts have
the size of the page's text there. matplotlib is optional and loads when a figure is first plotted.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trellis.safe_files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colors of Okabe and Ito, which people with color blindness can tell apart."""
GRAY = "#767676"
"""Color of reference lines and their labels."""
MAX_COLUMNS = 4
"""Largest number of panels from left to right."""
WIDTH = 8.0
"""Width of a figure in inches."""
SINGLE_WIDTH = 5.2
"""Width of a figure with one panel in inches."""
DPI = 200
"""Pixels per inch of a PNG."""
STYLE: Any = {
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "figure.labelsize": 9.5,
    "svg.hashsalt": "trellis",  # Equal data give equal bytes.
}
MARGIN = 0.12
"""Space above and below the plotted means, as a part of their range."""
LABEL_GAP = 0.075
"""Default distance of two labels, as a part of the height of a panel."""


@contextlib.contextmanager
def open_figure(
    path: Path,
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float],
    svg: bool = False,
    sharey: bool = False,
) -> "Iterator[tuple[Figure, np.ndarray]]":
    """Yield a figure and its (rows, columns) array of axes; save it to `path` at the end.

    Args:
        path: File to write. Its folder is created.
        rows: Number of panels from top to bottom.
        columns: Number of panels from left to right.
        size: Width and height in inches.
        svg: Write the figure as SVG, too, beside `path`.
        sharey: Use the same vertical axis for all panels.
    """
    try:
        import matplotlib
    except ImportError as missing:
        raise ImportError("plots need matplotlib: pip install 'trellis-rl[plots]'") from missing
    matplotlib.use("Agg")  # Needs no display.
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained", sharey=sharey
        )
        try:
            yield figure, axes
            path.parent.mkdir(parents=True, exist_ok=True)
            write_figure(figure, path)
            if svg:
                write_figure(figure, path.with_suffix(".svg"))
        finally:
            pyplot.close(figure)


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the file's suffix names."""
    buffer = io.BytesIO()
    kind = path.suffix[1:] or None
    figure.savefig(buffer, dpi=DPI, format=kind, metadata={"Date": None} if kind == "svg" else None)
    # A link of this name, as a run folder may have, is replaced and not followed.
    write_file(path.parent, path.name, buffer.getvalue())


@contextlib.contextmanager
def open_grid(
    path: Path,
    panels: int,
    *,
    height: float = 2.1,
    columns: int | None = None,
    svg: bool = False,
    sharey: bool = False,
) -> "Iterator[tuple[Figure, list[Axes]]]":
    """Yield a figure and its panels in reading order, at most four from left to right.

    Args:
        path: File to write.
        panels: Number of panels.
        height: Height of a panel in inches; a single panel is half as high again.
        columns: Number of panels from left to right. Default: as few rows as possible, evenly
            filled.
        svg: Write the figure as SVG, too.
        sharey: Use the same vertical axis for all panels.
    """
    rows = -(-panels // (columns or MAX_COLUMNS))
    columns = columns or -(-panels // rows)
    single = panels == 1
    size = (SINGLE_WIDTH, 1.5 * height) if single else (WIDTH, height * rows + 0.3)
    with open_figure(path, rows, columns, size=size, svg=svg, sharey=sharey) as (figure, axes):
        for axis in axes.flat[panels:]:
            axis.set_visible(False)
        yield figure, list(axes.flat[:panels])


def plot_band(
    axis: "Axes",
    x: ArrayLike,
    mean: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    color: str,
    alpha: float = 0.18,
    style: str = "-",
    **line: Any,
) -> None:
    """Plot a mean as a line and its interval as a shaded band."""
    axis.plot(x, mean, style, color=color, **line)
    axis.fill_between(x, low, high, color=color, alpha=alpha, linewidth=0)


def format_counts(axis: "Axes") -> None:
    """Label a horizontal axis of counts as 1M or 200k, starting at 0."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_xlim(left=0)
    axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of the unit that suits a time, and the name of that unit."""
    for size, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * size:
            return size, name
    return 1.0, "s"


def limits(means: Sequence[float]) -> tuple[float, float] | None:
    """Return limits that show every mean; the band of a few seeds may be cut off."""
    if not means:
        return None
    margin = MARGIN * (max(means) - min(means)) or 1.0
    return min(means) - margin, max(means) + margin


class EndLabel(NamedTuple):
    """A label for the right end of a line."""

    x: float
    y: float
    text: str
    color: str


def label_ends(axis: "Axes", labels: Sequence[EndLabel], gap: float = LABEL_GAP) -> None:
    """Write labels right of a panel, beside the ends of its lines and without overlap.

    Call it after the limits of the axes are set. A dotted line leads from the end of a line to its
    label.

    Args:
        axis: Panel with the lines.
        labels: Labels of the lines.
        gap: Smallest distance of two labels, as a part of the height of the panel.
    """
    axis.get_ylim()  # Limits that follow the data are computed when they are read.
    to_axes = axis.transScale + axis.transLimits

    def height(label: EndLabel) -> float:
        return float(to_axes.transform((label.x, label.y))[1])

    ordered = sorted(labels, key=height)
    places = spread([min(1.0, max(0.0, height(label))) for label in ordered], gap)
    for label, place in zip(ordered, places, strict=True):
        axis.annotate(
            label.text,
            xy=(label.x, label.y),
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            color=label.color,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.color,
                "linestyle": ":",
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Return sorted places moved as little as needed to be at least `gap` apart.

    Places that are too close become a block around their common middle.
    """
    blocks: list[list[float]] = []
    for place in places:
        blocks.append([place])
        while len(blocks) > 1 and _bounds(blocks[-1], gap)[0] < _bounds(blocks[-2], gap)[1] + gap:
            last = blocks.pop()
            blocks[-1] += last
    return [_bounds(block, gap)[0] + index * gap for block in blocks for index in range(len(block))]


def _bounds(block: Sequence[float], gap: float) -> tuple[float, float]:
    """Return the lowest and the highest place of a block around its mean."""
    middle, half = float(np.mean(block)), (len(block) - 1) * gap / 2
    return middle - half, middle + half


def add_note(figure: "Figure", text: str) -> None:
    """Write a small note below the panels."""
    figure.supxlabel(text, fontsize=8.5, color=GRAY)


def color_legend(axis: "Axes", **options: Any) -> None:
    """Add a legend whose texts have the colors of their lines, and no samples of them."""
    options = {"handlelength": 0, "handletextpad": 0, "labelcolor": "linecolor", **options}
    legend = axis.legend(**options)
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_visible(False)
