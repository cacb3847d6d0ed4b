"""Learning curves from the logs of runs alone: return against steps or seconds.

Runs that differ in nothing but their seed make one curve: the mean over seeds on a common grid,
with a 95% confidence band (Student's t). A single run is plotted as it is. Each environment has a
panel.
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
PARTS = ("seconds_sampling", "seconds_estimation", "seconds_update")
"""Metrics that add up to the time of an iteration."""
AXIS_LABELS = {
    "steps": "simulator steps",
    "seconds": "seconds of training",
    "episode_return_mean": "mean return of finished episodes",
    "eval_return_mean": "mean return of evaluations",
}


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

    Raises:
        RunFolderError: If a folder is not a run.
        ValueError: If there is nothing to plot, or a run is given twice.
    """
    if not folders:
        raise ValueError("name at least one run to plot")
    path = Path(path)
    path = path if path.suffix else path.with_suffix(".png")
    groups = group_runs([read_curve(folder, x, y) for folder in folders])
    environments = list(dict.fromkeys(settings["env"] for settings, _ in groups))
    count = len(environments)
    with figures.open_figure(path, 1, count, size=(1.2 + 5.8 * count, 4.4), dpi=150) as (_, axes):
        for axis, environment in zip(axes[0], environments, strict=True):
            _plot_panel(axis, [group for group in groups if group[0]["env"] == environment], x)
            axis.set(title=environment, xlabel=AXIS_LABELS[x])
        axes[0, 0].set_ylabel(AXIS_LABELS[y])
    return path


def read_curve(folder: str | Path, x: X = "steps", y: Y = "episode_return_mean") -> Curve:
    """Return the curve of one run, without the iterations in which no episode ended."""
    run = LoggedRun(Path(folder), read_config(folder))
    points, spent = [], 0.0
    for row in run.stream():
        spent += sum(run.number(row, part) or 0.0 for part in PARTS)
        value = run.number(row, y)
        if value is not None:
            points.append((spent if x == "seconds" else row["steps"], value))
    if not points:
        what = "no evaluation" if y == "eval_return_mean" else "no episode"
        raise ValueError(f"there is nothing to plot in {folder}: {what} has ended in it yet")
    across, up = np.array(points, np.float64).T
    return Curve(run.folder, run.config, Line(across, up, str(folder)))


def band(lines: Sequence[Line], points: int = GRID_POINTS) -> Band:
    """Return the mean and 95% interval where all lines have points; one line has no interval."""
    start = max(line.x[0] for line in lines)
    end = min(line.x[-1] for line in lines)
    if start > end:
        raise ValueError(
            "these runs have no part in common: "
            + ", ".join(f"{line.name} has {line.x[0]:g} to {line.x[-1]:g}" for line in lines)
        )
    grid = np.linspace(start, end, points)
    values = np.array([np.interp(grid, line.x, line.y) for line in lines])
    mean = values.mean(axis=0)
    half = student_half_width(values) if len(lines) > 1 else 0.0
    return Band(grid, mean, mean - half, mean + half)


def seconds(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return the time spent in iterations up to each one, without evaluations and pauses."""
    return np.cumsum([sum(row.get(part) or 0.0 for part in PARTS) for row in rows])


def names(groups: Groups) -> list[str]:
    """Return what to call each experiment: its label and its seeds."""
    return [
        f"{label} ({f'{len(runs)} seeds' if len(runs) > 1 else f'seed {runs[0].config.seed}'})"
        for label, (_, runs) in zip(curve_labels([each for each, _ in groups]), groups, strict=True)
    ]


def _plot_panel(axis: "Axes", groups: Groups, x: X) -> None:
    colors = itertools.cycle(figures.COLORS)
    for (_, curves), label, color in zip(groups, names(groups), colors, strict=False):
        lines = [curve.line for curve in curves]
        if len(lines) == 1:
            axis.plot(lines[0].x, lines[0].y, color=color, label=label, linewidth=1.3)
        else:
            style = {"color": color, "label": label, "linewidth": 1.6}
            figures.plot_band(axis, *band(lines), alpha=0.18, **style)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    axis.set_xlim(left=0)
    if x == "steps":
        figures.format_counts(axis)
