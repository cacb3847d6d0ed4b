"""The figure of the ablations, from ablations.json alone: a panel per claim of the paper."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trellis.analysis import figures
from trellis.analysis.figures import COLORS
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 88
"""Letters per line of text."""
VERDICTS = {True: "holds here", False: "does not hold here", None: "open"}


def plot(results: Record, path: Path) -> None:
    """Plot curves where the way matters, final returns where a setting is varied."""
    rows, claims = results["rows"], results["claims"]
    panels = {
        "no-line-search": _plot_line_search,
        "cg-iterations": _plot_cg,
        "fisher-fraction": _plot_fisher,
        "penalty": _plot_penalty,
    }
    count = max(1, len(claims))
    lines, columns = -(-count // 2), min(count, 2)
    size = (6 + 4.5 * columns, 6.25 * lines)
    with figures.open_figure(path, lines, columns, size=size, dpi=100) as (figure, axes):
        for axis in axes.flat[len(claims) :]:
            axis.set_axis_off()  # Beside the last of three, or where nothing can be judged yet.
        for claim, axis in zip(claims, axes.flat, strict=False):
            panels[claim["group"]](axis, rows)
            axis.grid(alpha=0.25)
            axis.legend(frameon=False, fontsize=9)
            title = f"{claim['section']}: “{claim['paper']}.”"
            axis.set_title(_wrapped(title), fontsize=9.5, loc="left")
            found = _wrapped(f"Found ({VERDICTS[claim['holds']]}): {claim['found']}")
            axis.set_xlabel(f"{axis.get_xlabel()}\n\n{found}", fontsize=8.5)
        scale = "of the paper's size"
        if results["scale"] != 1:
            scale = f"scaled to {results['scale']:g} of the paper's steps"
        seeds = sorted({len(row["runs"]) for row in rows})
        figure.suptitle(
            f"The parts of TRPO on the swimmer, {results['iterations']} iterations {scale},"
            f" {' or '.join(map(str, seeds))} seed{'s' * (seeds[-1] > 1)}; bands and bars: 95%"
        )


def _wrapped(words: str) -> str:
    return "\n".join(textwrap.wrap(words, WIDTH))


def _of(rows: Sequence[Record], group: str) -> list[Record]:
    return sorted((r for r in rows if r["group"] == group), key=lambda row: row["value"])


def _plot_line_search(axis: "Axes", rows: Sequence[Record]) -> None:
    means: list[float] = []
    for index, row in enumerate(_of(rows, "no-line-search")):
        partner = next(r for r in _of(rows, "max-kl") if r["asked"] == row["asked"])
        for each, words, line in ((partner, "with", "-"), (row, "without", "--")):
            curve, color = each["curve"], COLORS[index]
            means += curve["mean"]
            label = f"δ = {row['asked']:g}, {words} line search"
            figures.plot_band(axis, **curve, color=color, alpha=0.1, style=line, label=label)
    axis.set(ylim=figures.limits(means))
    axis.set(xlabel="simulator steps", ylabel="mean return of training episodes")


def _plot_cg(axis: "Axes", rows: Sequence[Record]) -> None:
    group = _of(rows, "cg-iterations")
    _bars(axis, group, "final_return", "at the end", COLORS[0])
    _bars(axis, group, "mean_return", "mean over training", COLORS[1])
    axis.set(xlabel="CG iterations", ylabel="return")
    _ticks(axis, group)


def _plot_fisher(axis: "Axes", rows: Sequence[Record]) -> None:
    group = _of(rows, "fisher-fraction")
    _bars(axis, group, "final_return", "return at the end", COLORS[0])
    axis.set(xlabel="part of the data for the Fisher matrix", ylabel="return")
    _ticks(axis, group)
    other = axis.twinx()
    times = [np.mean([run["seconds_update"] for run in row["runs"]]) for row in group]
    other.plot([row["value"] for row in group], times, ":", color=COLORS[1])
    other.set_ylabel("seconds of a step (dotted)", color=COLORS[1])
    other.set_ylim(bottom=0)


def _plot_penalty(axis: "Axes", rows: Sequence[Record]) -> None:
    # √δ and 1/C are what a step's length goes with.
    for group, words, power, color in (
        ("max-kl", "constraint δ", 0.5, COLORS[0]),
        ("penalty", "penalty C", -1.0, COLORS[1]),
    ):
        found = _of(rows, group)
        middle = found[len(found) // 2]["value"]
        length = [(row["value"] / middle) ** power for row in found]
        label = f"{words}, in the middle {middle:g}"
        _bars(axis, found, "final_return", label, color, across=length)
    axis.set(
        xlabel="length of a step by its setting, where the middle value is 1",
        ylabel="return at the end",
    )


def _bars(
    axis: "Axes",
    rows: Sequence[Record],
    key: str,
    label: str,
    color: str,
    across: Sequence[float] | None = None,
) -> None:
    """Plot estimates with their intervals, by default against the varied value."""
    x = across or [row["value"] for row in rows]
    estimates = [row[key] for row in rows]
    y = [found["value"] for found in estimates]
    half = [0.0 if found["high"] is None else found["high"] - found["value"] for found in estimates]
    axis.errorbar(x, y, yerr=half, fmt="o-", color=color, label=label, capsize=3)
    axis.set_xscale("log")


def _ticks(axis: "Axes", rows: Sequence[Record]) -> None:
    axis.set_xticks([row["value"] for row in rows], [f"{row['value']:g}" for row in rows])
    axis.minorticks_off()
