"""The figure of the ablations, from ablations.json alone: a panel for each claim of the paper."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import curves as plots
from trellis.analysis.curves import COLORS

WIDTH = 88
"""Letters in a line of words."""


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Curves where the way matters, final returns where a setting is varied."""
    pyplot = plots.load_pyplot()
    rows = results["rows"]
    panels = {
        "no-line-search": _draw_line_search,
        "cg-iterations": _draw_cg,
        "fisher-fraction": _draw_fisher,
        "penalty": _draw_penalty,
    }
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(style):
        count = max(1, len(results["claims"]))
        lines, columns = -(-count // 2), min(count, 2)
        size = (6 + 4.5 * columns, 6.25 * lines)
        figure, axes = pyplot.subplots(
            lines, columns, figsize=size, layout="constrained", squeeze=False
        )
        for axis in axes.flat[len(results["claims"]) :]:
            axis.set_axis_off()  # Beside the last of three, or where nothing can be judged yet.
        for claim, axis in zip(results["claims"], axes.flat, strict=False):
            panels[claim["group"]](axis, rows)
            axis.grid(alpha=0.25)
            axis.legend(frameon=False, fontsize=9)
            words = {True: "holds here", False: "does not hold here", None: "open"}
            verdict = words[claim["holds"]]
            words = f"{claim['section']}: “{claim['paper']}.”"
            axis.set_title(_wrapped(words), fontsize=9.5, loc="left")
            found = _wrapped(f"Found ({verdict}): {claim['found']}")
            axis.set_xlabel(f"{axis.get_xlabel()}\n\n{found}", fontsize=8.5)
        scale = "of the paper's size"
        if results["scale"] != 1:
            scale = f"scaled to {results['scale']:g} of the paper's steps"
        seeds = sorted({len(row["runs"]) for row in rows})
        figure.suptitle(
            f"The parts of TRPO on the swimmer, {results['iterations']} iterations {scale},"
            f" {' or '.join(map(str, seeds))} seed{'s' * (seeds[-1] > 1)}; bands and bars: 95%"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=100)
        pyplot.close(figure)


def _wrapped(words: str) -> str:
    return "\n".join(textwrap.wrap(words, WIDTH))


def _of(rows: Sequence[Mapping[str, Any]], group: str) -> list[Mapping[str, Any]]:
    return sorted((r for r in rows if r["group"] == group), key=lambda row: row["value"])


def _draw_line_search(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    means: list[float] = []
    for index, row in enumerate(_of(rows, "no-line-search")):
        partner = next(r for r in _of(rows, "max-kl") if r["asked"] == row["asked"])
        for each, words, line in ((partner, "with", "-"), (row, "without", "--")):
            curve, color = each["curve"], COLORS[index]
            means += curve["mean"]
            label = f"δ = {row['asked']:g}, {words} line search"
            axis.plot(curve["x"], curve["mean"], line, color=color, label=label)
            axis.fill_between(
                curve["x"], curve["low"], curve["high"], color=color, alpha=0.1, linewidth=0
            )
    room = 0.12 * (max(means) - min(means)) or 1.0  # The band of a few seeds may be cut off.
    axis.set_ylim(min(means) - room, max(means) + room)
    axis.set(xlabel="simulator steps", ylabel="mean return of training episodes")


def _draw_cg(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for index, (key, words) in enumerate(
        (("final_return", "at the end"), ("mean_return", "mean over training"))
    ):
        _bars(axis, _of(rows, "cg-iterations"), key, words, COLORS[index])
    axis.set(xscale="log", xlabel="CG iterations", ylabel="return")
    _ticks(axis, [row["value"] for row in _of(rows, "cg-iterations")])


def _draw_fisher(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    group = _of(rows, "fisher-fraction")
    _bars(axis, group, "final_return", "return at the end", COLORS[0])
    axis.set(xscale="log", xlabel="part of the data for the Fisher matrix", ylabel="return")
    _ticks(axis, [row["value"] for row in group])
    other = axis.twinx()
    times = [np.mean([run["seconds_update"] for run in row["runs"]]) for row in group]
    other.plot([row["value"] for row in group], times, ":", color=COLORS[1])
    other.set_ylabel("seconds of a step (dotted)", color=COLORS[1])
    other.set_ylim(bottom=0)


def _draw_penalty(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for index, (group, words) in enumerate((("max-kl", "constraint δ"), ("penalty", "penalty C"))):
        found = _of(rows, group)
        middle = found[len(found) // 2]["value"]
        # √δ and 1/C are what a step's length goes with.
        length = [
            np.sqrt(r["value"] / middle) if index == 0 else middle / r["value"] for r in found
        ]
        label = f"{words}, in the middle {middle:g}"
        _bars(axis, found, "final_return", label, COLORS[index], across=length)
    axis.set(
        xscale="log",
        xlabel="length of a step by its setting, where the middle value is 1",
        ylabel="return at the end",
    )


def _bars(
    axis: Any,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    color: str,
    across: Sequence[float] | None = None,
) -> None:
    x = [row["value"] for row in rows] if across is None else across
    y = [row[key]["value"] for row in rows]
    high = [row[key]["high"] for row in rows]
    half = [0.0 if top is None else top - value for top, value in zip(high, y, strict=True)]
    axis.errorbar(x, y, yerr=half, fmt="o-", color=color, label=label, capsize=3)


def _ticks(axis: Any, values: Sequence[float]) -> None:
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.minorticks_off()
