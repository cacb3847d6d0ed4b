"""Learning curves from the logs of runs alone: return against steps or training time.

Runs that differ only in their seed make one curve: the mean over seeds on a common grid, with a 95%
confidence band (Student's t). A single run has no band. Each environment has a panel.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.analysis import figures
from trellis.analysis.labels import curve_labels
from trellis.analysis.logged_run import LoggedRun, group_runs
from trellis.analysis.statistics import student_half_width
from trellis.runs.folder import read_config

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X = Literal["steps", "seconds"]
Y = Literal["episode_return_mean", "eval_return_mean"]
GRID_POINTS = 300
RETURN_LABELS = {
    "episode_return_mean": "mean return of training episodes",
    "eval_return_mean": "mean return of evaluations",
}
TIMED_PARTS = (
    "seconds_sampling",
    "seconds_estimation",
    "seconds_update",
    "seconds_iteration",
)
"""Parts of an iteration whose time counts."""
INTERRUPTED = 10.0
"""An iteration was interrupted if it took this many times as long as its neighbors."""
NEIGHBORS = 10
"""Number of neighbors of an iteration, before and after it."""


class Line(NamedTuple):
    """Points of one run, from left to right."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    name: str = "a run"


class Band(NamedTuple):
    """A mean over seeds and its confidence interval, on one grid."""

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Curve(LoggedRun):
    """A run and its learning curve."""

    line: Line


Groups = Sequence[tuple[Mapping[str, Any], Sequence[Curve]]]
"""Settings and curves of each experiment."""


def plot(
    folders: Sequence[str | Path],
    path: str | Path,
    *,
    x: X = "steps",
    y: Y = "episode_return_mean",
) -> Path:
    """Plot the curves of these runs and return the path of the image.

    Args:
        folders: Run folders.
        path: Image to write; its ending names the format, such as .png or .svg.
        x: Horizontal axis.
        y: Metric on the vertical axis.

    Raises:
        RunFolderError: If a folder is not a run.
        ValueError: If there is nothing to plot, or a run is given twice.
    """
    if not folders:
        raise ValueError("no run to plot: name at least one run folder")
    path = Path(path)
    path = path if path.suffix else path.with_suffix(".png")
    groups = group_runs([read_curve(folder, x, y) for folder in folders])
    environments = list(dict.fromkeys(settings["env"] for settings, _ in groups))
    across, scale = "simulator steps", 1.0
    if x == "seconds":
        longest = max(curve.line.x[-1] for _, curves in groups for curve in curves)
        scale, unit = figures.time_unit(float(longest))
        across = f"training time ({unit})"
    with figures.open_grid(path, len(environments), height=2.4) as (figure, axes):
        for axis, environment in zip(axes, environments, strict=True):
            here = [group for group in groups if group[0]["env"] == environment]
            _plot_panel(axis, here, scale)
            axis.set_title(environment)
            if x == "steps":
                figures.format_counts(axis)
        figure.supxlabel(across)
        figure.supylabel(RETURN_LABELS[y])
    return path


def read_curve(folder: str | Path, x: X = "steps", y: Y = "episode_return_mean") -> Curve:
    """Return the curve of one run, without the iterations in which no episode ended."""
    run = LoggedRun(Path(folder), read_config(folder))
    numbers = ("steps", y, *TIMED_PARTS)
    rows = [{name: run.number(row, name) for name in numbers} for row in run.stream()]
    across = seconds(rows) if x == "seconds" else [row["steps"] for row in rows]
    points = [(at, row[y]) for at, row in zip(across, rows, strict=True) if row[y] is not None]
    if not points:
        what = "evaluation" if y == "eval_return_mean" else "episode"
        raise ValueError(f"{folder} has nothing to plot: no {what} has ended yet. Train it longer.")
    across, up = np.array(points, np.float64).T
    return Curve(run.folder, run.config, Line(across, up, str(folder)))


def band(lines: Sequence[Line], points: int = GRID_POINTS) -> Band:
    """Return the mean and 95% interval where all lines have points; one line has no interval."""
    start = max(line.x[0] for line in lines)
    end = min(line.x[-1] for line in lines)
    if start > end:
        raise ValueError(
            "these runs have no common part of the horizontal axis, so they have no mean: "
            + ", ".join(f"{line.name} covers {line.x[0]:g} to {line.x[-1]:g}" for line in lines)
            + ". Plot them one at a time."
        )
    grid = np.linspace(start, end, points)
    values = np.array([np.interp(grid, line.x, line.y) for line in lines])
    mean = values.mean(axis=0)
    half = student_half_width(values) if len(lines) > 1 else 0.0
    return Band(grid, mean, mean - half, mean + half)


def seconds(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return the training time up to each iteration, without evaluations and interruptions.

    A process that was resumed compiles again in its first iteration, and one that was suspended
    keeps counting. Such an iteration is far slower than its neighbors, by its time and by its
    time per simulator step. It counts with the median time of its neighbors, so that the time axis
    does not jump there. The first iteration of a run counts in full, with its compilation.
    """
    taken = np.array([sum(row.get(part) or 0.0 for part in TIMED_PARTS) for row in rows])
    steps = np.diff([row.get("steps") or 0 for row in rows], prepend=0)
    pace = taken / np.maximum(steps, 1)
    counted = taken.copy()
    for index in range(1, len(rows)):
        window = range(max(0, index - NEIGHBORS), min(len(rows), index + NEIGHBORS + 1))
        others = [other for other in window if other != index]
        usual = float(np.median(taken[others]))
        usual_pace = float(np.median(pace[others]))
        if taken[index] > INTERRUPTED * usual and pace[index] > INTERRUPTED * usual_pace:
            counted[index] = usual
    return np.cumsum(counted)


def names(groups: Groups) -> list[str]:
    """Return a name for each experiment: its label and its seeds."""
    return [
        f"{label} ({f'{len(runs)} seeds' if len(runs) > 1 else f'seed {runs[0].config.seed}'})"
        for label, (_, runs) in zip(curve_labels([each for each, _ in groups]), groups, strict=True)
    ]


def _plot_panel(axis: "Axes", groups: Groups, scale: float) -> None:
    """Plot the curves of one environment; `scale` divides the horizontal axis."""
    colors = itertools.cycle(figures.COLORS)
    for (_, curves), label, color in zip(groups, names(groups), colors, strict=False):
        lines = [curve.line._replace(x=curve.line.x / scale) for curve in curves]
        if len(lines) == 1:
            axis.plot(lines[0].x, lines[0].y, color=color, label=label)
        else:
            figures.plot_band(axis, *band(lines), color=color, label=label)
    axis.set_xlim(left=0)
    figures.color_legend(axis, fontsize=8)
