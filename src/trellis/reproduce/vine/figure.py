"""The figures about vine: variances from vine-variance.json, and the branches of Figure 1."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trellis.analysis import figures
from trellis.reproduce.files import Record
from trellis.sampling.samples import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X, Z = 0, 1
"""Indices in the hopper's state: the torso's position along the way, and its height."""
TRUNK_COLOR = "0.35"
BAR_COLORS = {
    "vine": "tab:green",
    "common random numbers": "tab:green",
    "vine, separate noise": "tab:olive",
    "separate noise": "tab:olive",
    "single path": "tab:blue",
}


def plot_variance(results: Record, path: Path) -> None:
    """Plot what common random numbers bring, then gradients per Q-value and per step."""
    rows = results["rows"]
    labels = [f"{row['task']}\nafter {row['iterations']} iterations" for row in rows]
    differences = {
        "common random numbers": [row["q_difference_var_common"] for row in rows],
        "separate noise": [row["q_difference_var_separate"] for row in rows],
    }
    panels = {"variance of Q̂(s, a₁) − Q̂(s, a₂)": differences}
    for key, what in (("per_q_value", "Q-value"), ("per_step", "simulator step")):
        panels[f"gradient: noise over signal, per {what}"] = {
            name: [row["gradients"][name][key] for row in rows] for name in rows[0]["gradients"]
        }
    with figures.open_figure(path, columns=3, size=(15, 4.8), boxed=True) as (_, axes):
        for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
            _bars(axis, labels, series)
            axis.set_title(title)


def _bars(axis: "Axes", labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * width for place in range(len(labels))]
        bars = axis.bar(places, values, width, label=name, color=BAR_COLORS[name])
        axis.bar_label(bars, labels=[f"{value:.2g}" for value in values], fontsize=7)
    axis.set_yscale("log")
    axis.margins(y=0.25)
    axis.set_xticks(range(len(labels)), labels, fontsize=8)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3, axis="y")


def plot_branches(samples: Samples, rollouts: np.ndarray, path: Path) -> None:
    """Plot trunks as lines, the rollout set as dots, and a colour for each of a state's actions."""
    assert samples.branches is not None
    trunks = samples.raw_observation
    with figures.open_figure(path, size=(11, 4.5), dpi=130, boxed=True) as (_, axes):
        from matplotlib.lines import Line2D

        axis = axes[0, 0]
        for trunk in range(trunks.shape[1]):
            begins = np.flatnonzero(samples.age[:, trunk] == 0)
            for part in np.split(trunks[:, trunk], begins[1:]):
                axis.plot(part[:, X], part[:, Z], color=TRUNK_COLOR, linewidth=1.6, zorder=2)
        colors = [f"C{k}" for k in range(rollouts.shape[1])]
        for k, color in enumerate(colors):
            for n, length in enumerate(samples.branches.length[:, k]):
                way = rollouts[: length + 1, k, n]
                axis.plot(way[:, X], way[:, Z], color=color, linewidth=0.9, alpha=0.9, zorder=3)
        start = rollouts[0, 0]
        axis.plot(start[:, X], start[:, Z], "o", color="black", markersize=5, zorder=4)
        handles = [
            Line2D([], [], color=TRUNK_COLOR, linewidth=1.6, label="trunks"),
            Line2D([], [], color="black", marker="o", linestyle="", label="rollout set"),
            *(
                Line2D([], [], color=color, label=f"rollout after action {k + 1}")
                for k, color in enumerate(colors)
            ),
        ]
        axis.legend(handles=handles, fontsize=8, loc="best")
        axis.set(xlabel="x of the torso (m)", ylabel="height of the torso (m)")
        axis.grid(alpha=0.3)
