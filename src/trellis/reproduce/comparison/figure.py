"""The figures of a task of the comparison, like Figure 4, from the task's JSON alone.

TASK-reward.png shows what Figure 4 seems to show: the reward per time step of the stochastic policy
against policy iterations. TASK.png has a panel per method: the return of its training episodes
against simulator steps. A method whose runs all had the machine to themselves also gets a panel
against training time. Runs that share cores get none: their time depends on the other runs.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.analysis import figures
from trellis.analysis.figures import EndLabel
from trellis.reproduce.comparison.findings import label
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REFERENCE = "trpo"
"""Method that every panel shows as a gray line."""
TITLE_WIDTH = 22
"""Letters per line of a panel's title."""


def plot(task: Record, out: Path, name: str) -> None:
    """Write the figures of one task as PNG and SVG.

    Args:
        task: Contents of the task's file.
        out: Folder for the figures.
        name: Name of the task.
    """
    _plot_returns(task["methods"], out / f"{name}.png")
    _plot_rewards(task, out / f"{name}-reward.png")


def was_timed(record: Record) -> bool:
    """Return whether a method has a curve against time, and each of its runs had all cores."""
    had_all = all(run["threads"] == 0 for run in record["runs"])
    return had_all and bool(record["curves"]["return_by_seconds"]["x"])


def full_label(method: str, record: Record) -> str:
    """Return the name of a method and its swept setting."""
    words = label(method, record)
    if record["swept"]:
        words += f", {record['swept']['setting']} {record['swept']['value']:g}"
    return words


def _plot_returns(methods: Mapping[str, Record], path: Path) -> None:
    """Plot the return against steps, a panel per method, and against time where it was timed."""
    shown = {
        method: record
        for method, record in methods.items()
        if record["curves"]["return_by_steps"]["x"]
    }
    timed = {method: record for method, record in shown.items() if was_timed(record)}
    means = [
        value for record in shown.values() for value in record["curves"]["return_by_steps"]["mean"]
    ]
    panels = len(shown) + len(timed)
    with figures.open_grid(path, panels, svg=True, sharey=True) as (figure, axes):
        for axis, (method, record) in zip(axes, shown.items(), strict=False):
            if method != REFERENCE and REFERENCE in shown:
                curve = shown[REFERENCE]["curves"]["return_by_steps"]
                axis.plot(curve["x"], curve["mean"], color=figures.GRAY, linewidth=1)
            _plot_curve(axis, method, record, "return_by_steps")
            axis.set_xlabel("simulator steps")
            figures.format_counts(axis)
        for axis, (method, record) in zip(axes[len(shown) :], timed.items(), strict=True):
            size, unit = figures.time_unit(record["curves"]["return_by_seconds"]["x"][-1])
            _plot_curve(axis, method, record, "return_by_seconds", scale=size)
            axis.set_xlabel(f"training time ({unit})")
            axis.set_xlim(left=0)
        axes[0].set_ylim(figures.limits(means))
        figure.supylabel("mean return of training episodes")
        reference = REFERENCE in shown and len(shown) > 1
        gray = f"Gray: {METHODS[REFERENCE].label}. " if reference else ""
        figures.add_note(figure, f"{gray}Band: 95% interval over seeds.")


def _plot_curve(
    axis: "Axes", method: str, record: Record, name: str, *, scale: float = 1.0
) -> None:
    """Plot the mean over seeds with its 95% band; `scale` divides the horizontal axis."""
    curve = record["curves"][name]
    across = [x / scale for x in curve["x"]]
    band = (curve["mean"], curve["low"], curve["high"])
    figures.plot_band(axis, across, *band, color=METHODS[method].color)
    axis.set_title("\n".join(textwrap.wrap(full_label(method, record), TITLE_WIDTH)))


def _plot_rewards(task: Record, path: Path) -> None:
    """Plot the reward per time step of all methods against iterations, with a label per line."""
    curves = {
        method: record["curves"]["reward_by_iterations"]
        for method, record in task["methods"].items()
        if record["curves"]["reward_by_iterations"]["x"]
    }
    still = task["standing_reward"]
    with figures.open_figure(path, size=(figures.WIDTH, 4.0), svg=True) as (_, axes):
        axis = axes[0, 0]
        ends = []
        for method, curve in curves.items():
            about = METHODS[method]
            style = "--" if about.search else "-"
            axis.plot(curve["x"], curve["mean"], style, color=about.color)
            name = label(method, task["methods"][method])
            ends.append(EndLabel(curve["x"][-1], curve["mean"][-1], name, about.color))
        shown = [value for curve in curves.values() for value in curve["mean"]]
        if still is not None:
            axis.axhline(still, color=figures.GRAY, linewidth=1, linestyle=":")
            ends.append(EndLabel(axis.get_xlim()[1], still, "standing still", figures.GRAY))
            shown.append(still)
        axis.set(
            xlabel="policy iterations",
            ylabel="reward per time step",
            ylim=figures.limits(shown),
        )
        figures.label_ends(axis, ends)
