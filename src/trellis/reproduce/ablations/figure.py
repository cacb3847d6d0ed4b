"""The figure of the ablations, from ablations.json alone: a panel per claim of the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trellis.analysis import figures
from trellis.analysis.figures import COLORS, EndLabel
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FINAL = "final return"
DURING = "mean over training"


def plot(results: Record, path: Path) -> None:
    """Write the figure as PNG and SVG; without a judged claim there is none."""
    rows, claims = results["rows"], results["claims"]
    panels = {
        "no-line-search": ("Line search", _plot_line_search),
        "cg-iterations": ("Conjugate gradient", _plot_cg),
        "fisher-fraction": ("Data for the Fisher matrix", _plot_fisher),
        "penalty": ("Constraint and penalty", _plot_penalty),
    }
    if not claims:
        return
    with figures.open_grid(
        path, len(claims), height=3.0, columns=min(2, len(claims)), svg=True
    ) as (
        figure,
        axes,
    ):
        for claim, axis in zip(claims, axes, strict=True):
            name, plot_panel = panels[claim["group"]]
            axis.set_title(f"{name} ({claim['section']})", loc="left")
            plot_panel(axis, rows)
        figures.add_note(figure, "Bands and bars: 95% interval over seeds.")


def _of(rows: Sequence[Record], group: str) -> list[Record]:
    return sorted((r for r in rows if r["group"] == group), key=lambda row: row["value"])


def _plot_line_search(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the return with and without line search for each δ."""
    means, ends = [], []
    for index, row in enumerate(_of(rows, "no-line-search")):
        partner = next(r for r in _of(rows, "max-kl") if r["asked"] == row["asked"])
        for each, words, line in ((partner, "with", "-"), (row, "without", "--")):
            curve, color = each["curve"], COLORS[index]
            means += curve["mean"]
            figures.plot_band(axis, **curve, color=color, alpha=0.1, style=line)
            label = f"δ = {row['asked']:g}, {words}"
            ends.append(EndLabel(curve["x"][-1], curve["mean"][-1], label, color))
    axis.set(ylim=figures.limits(means))
    axis.set(xlabel="simulator steps", ylabel="return of training episodes")
    figures.format_counts(axis)
    figures.label_ends(axis, ends)


def _plot_cg(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the returns against the number of CG iterations."""
    group = _of(rows, "cg-iterations")
    _plot_estimates(axis, group, "final_return", COLORS[0])
    _plot_estimates(axis, group, "mean_return", COLORS[1])
    axis.set(xlabel="CG iterations", ylabel="return")
    _ticks(axis, group)
    last = group[-1]
    ends = [
        EndLabel(last["value"], last[key]["value"], text, color)
        for key, text, color in (
            ("final_return", FINAL, COLORS[0]),
            ("mean_return", DURING.replace(" ", "\n", 1), COLORS[1]),
        )
    ]
    figures.label_ends(axis, ends)


def _plot_fisher(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the final return and the time of a step against the part of the data."""
    group = _of(rows, "fisher-fraction")
    _plot_estimates(axis, group, "final_return", COLORS[0])
    axis.set(xlabel="part of the data for the Fisher matrix")
    axis.set_ylabel(FINAL, color=COLORS[0])
    _ticks(axis, group, percent=True)
    other = axis.twinx()
    times = [np.mean([run["seconds_update"] for run in row["runs"]]) for row in group]
    other.plot([row["value"] for row in group], times, "s:", color=COLORS[1])
    other.set_ylabel("time of a step (s), dotted", color=COLORS[1])
    other.set_ylim(bottom=0)
    other.grid(visible=False)
    other.spines["right"].set_visible(True)


def _plot_penalty(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the final return against the relative length of a step."""
    ends = []
    # The length of a step is proportional to √δ and to 1/C.
    for group, words, power, color in (
        ("max-kl", "constraint\n(1: δ = {:g})", 0.5, COLORS[0]),
        ("penalty", "penalty\n(1: C = {:g})", -1.0, COLORS[1]),
    ):
        found = _of(rows, group)
        middle = found[len(found) // 2]["value"]
        length = [(row["value"] / middle) ** power for row in found]
        _plot_estimates(axis, found, "final_return", color, across=length)
        last = max(range(len(found)), key=length.__getitem__)
        value = found[last]["final_return"]["value"]
        ends.append(EndLabel(length[last], value, words.format(middle), color))
    axis.set(xlabel="relative length of a step", ylabel=FINAL)
    figures.label_ends(axis, ends, gap=0.2)


def _plot_estimates(
    axis: "Axes",
    rows: Sequence[Record],
    key: str,
    color: str,
    across: Sequence[float] | None = None,
) -> None:
    """Plot estimates with their intervals, by default against the changed value."""
    x = across or [row["value"] for row in rows]
    estimates = [row[key] for row in rows]
    y = [found["value"] for found in estimates]
    half = [0.0 if found["high"] is None else found["high"] - found["value"] for found in estimates]
    axis.errorbar(x, y, yerr=half, fmt="o-", color=color, capsize=3, markersize=4)
    axis.set_xscale("log")


def _ticks(axis: "Axes", rows: Sequence[Record], *, percent: bool = False) -> None:
    spec = ".0%" if percent else "g"
    axis.set_xticks([row["value"] for row in rows], [f"{row['value']:{spec}}" for row in rows])
    axis.minorticks_off()
