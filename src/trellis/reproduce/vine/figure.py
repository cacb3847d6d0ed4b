"""The figures about vine: variances from vine-variance.json, branches from vine-branches.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.analysis import figures
from trellis.analysis.figures import COLORS
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, VERMILION, GREEN, PURPLE, ORANGE, _, BLACK = COLORS
TRUNK_COLOR = "0.35"
MARKERS = {
    "vine": (GREEN, "o"),
    "common random numbers": (GREEN, "o"),
    "vine, separate noise": (ORANGE, "s"),
    "separate noise": (ORANGE, "s"),
    "single path": (BLUE, "D"),
    "single path, time baseline": (PURPLE, "^"),
}
"""Color and marker of each sampler."""
ACTION_COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE)


def case_name(row: Record) -> str:
    """Return the task and the iterations of learning of one measurement."""
    task = row["task"].removeprefix("the paper's ")
    return f"{task}, {row['iterations']} iterations"


def plot_variance(results: Record, path: Path) -> None:
    """Plot the variance of differences, and of gradients per Q-value and per step."""
    rows = results["rows"]
    differences = {
        "common random numbers": [row["q_difference_var_common"] for row in rows],
        "separate noise": [row["q_difference_var_separate"] for row in rows],
    }
    panels = {"Variance of\nQ̂(s, a₁) − Q̂(s, a₂)": differences}
    for key, what in (("per_q_value", "Q-value"), ("per_step", "simulator step")):
        panels[f"Gradient: noise over\nsignal, per {what}"] = {
            name: [row["gradients"][name][key] for row in rows] for name in rows[0]["gradients"]
        }
    size = (figures.WIDTH, 1.7 + 0.35 * len(rows))
    with figures.open_figure(path, columns=3, size=size, svg=True, sharey=True) as (figure, axes):
        from matplotlib.lines import Line2D

        for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
            _plot_markers(axis, series)
            axis.set_title(title)
        axes[0, 0].set_yticks(range(len(rows)), [case_name(row) for row in rows])
        axes[0, 0].invert_yaxis()
        names = list(rows[0]["gradients"])
        handles = [
            Line2D([], [], color=MARKERS[name][0], marker=MARKERS[name][1], linestyle="")
            for name in names
        ]
        labels = ["vine (common random numbers)", *names[1:]]
        figure.legend(handles, labels, loc="outside lower center", ncols=2, labelcolor="linecolor")


def _plot_markers(axis: "Axes", series: Mapping[str, Sequence[float]]) -> None:
    """Plot one row of markers per case, on a logarithmic axis."""
    for name, values in series.items():
        color, marker = MARKERS[name]
        axis.plot(values, range(len(values)), marker, color=color, linestyle="", markersize=6)
    axis.set_xscale("log")
    axis.margins(y=0.15)


def plot_branches(record: Record, path: Path) -> None:
    """Plot trunks as gray lines, branch states as dots, and a color per action of a state.

    Args:
        record: Paths of the torso, as `branches.picture_record` returns them.
        path: Path of the PNG.
    """
    with figures.open_figure(path, size=(figures.WIDTH, 3.9), svg=True) as (figure, axes):
        from matplotlib.lines import Line2D

        axis = axes[0, 0]
        for x, z in record["trunks"]:
            axis.plot(x, z, color=TRUNK_COLOR, linewidth=1.6, zorder=2)
        colors = [ACTION_COLORS[k % len(ACTION_COLORS)] for k in range(len(record["rollouts"]))]
        for color, rollouts in zip(colors, record["rollouts"], strict=True):
            for x, z in rollouts:
                axis.plot(x, z, color=color, linewidth=0.9, alpha=0.9, zorder=3)
        axis.plot(*record["states"], "o", color=BLACK, markersize=5, zorder=4)
        handles = [
            Line2D([], [], color=TRUNK_COLOR, linewidth=1.6, label="trunk"),
            Line2D([], [], color=BLACK, marker="o", linestyle="", label="branch state"),
            *(
                Line2D([], [], color=color, label=f"action {k + 1}")
                for k, color in enumerate(colors)
            ),
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), labelcolor="linecolor"
        )
        axis.set(xlabel="position of the torso (m)", ylabel="height of the torso (m)")
