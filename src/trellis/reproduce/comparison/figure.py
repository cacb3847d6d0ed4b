"""The figure of a task of the comparison, like Figure 4, from comparison.json alone.

Return against steps and against seconds, and the cost per time step that the paper seems to plot,
with a line at −1 where standing still achieves that.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellis.analysis import curves as plots

COLORS = {
    "trpo": "#0072B2",
    "trpo-vine": "#D55E00",
    "trpo-vine-of-states": "#7B241C",
    "trpo-vine-bootstrap": "#F5B7B1",
    "trpo-vine-short": "#C0392B",
    "natural-gradient": "#009E73",
    "empirical-fim": "#56B4E9",
    "max-kl": "#CC79A7",
    "cem": "#E69F00",
    "cma": "#8B5A2B",
    "policy-gradient": "#777777",
    "kl-penalty": "#000000",
}
PANELS = (
    ("return_by_steps", "simulator steps", "mean return of training episodes"),
    ("return_by_seconds", "seconds of training", "mean return of training episodes"),
    ("cost_by_steps", "simulator steps", "cost per time step"),
)


def draw(name: str, task: Mapping[str, Any], iterations: int, path: Path) -> None:
    """One task: a line a method, the mean over seeds with its 95% band."""
    pyplot = plots.load_pyplot()
    from matplotlib.ticker import EngFormatter

    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, 3, figsize=(16, 5.6), layout="constrained")
        for axis, (curve, across, up) in zip(axes, PANELS, strict=True):
            for method, record in task["methods"].items():
                _line(axis, record["curves"][curve], COLORS[method], label(record))
            axis.set(xlabel=across, ylabel=up, ylim=_limits(task, curve))
            axis.set_xlim(left=0)
            axis.grid(alpha=0.25)
            if across == "simulator steps":
                axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if task["standing_reward"] is not None:
            cost = -task["standing_reward"]
            axes[2].axhline(cost, color="black", linewidth=1, linestyle=":")
            axes[2].annotate(
                f"standing still: {cost:g}", (0.98, cost), xycoords=("axes fraction", "data"),
                ha="right", va="bottom", fontsize=9,
            )  # fmt: skip
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9
        )
        figure.suptitle(f"{name}, {iterations} iterations{scale_words(name, task)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def label(record: Mapping[str, Any]) -> str:
    """Method, what was swept, and of how many runs this is the mean."""
    words = record["label"]
    if record["swept"]:
        words += f", {record['swept']['setting']} {record['swept']['value']:g}"
    count = len(record["runs"])
    return f"{words} ({count} seed{'s' * (count > 1)})"


def scale_words(name: str, task: Mapping[str, Any]) -> str:
    """Says so, where an iteration has fewer steps than it should."""
    # The cart-pole has no column in the paper's table.
    full = "our full number of" if name == "cartpole" else "Table 2's"
    scales: dict[float, list[str]] = {}
    for record in task["methods"].values():
        scales.setdefault(record["scale"], []).append(record["label"])
    if set(scales) == {1.0}:
        return f" of {full} steps"
    if len(scales) == 1:
        return f", each scaled to {next(iter(scales)):g} of {full} steps"
    words = [f"{', '.join(labels)}: {scale:g}" for scale, labels in scales.items()]
    return f"\nsteps of an iteration as a part of {full}: {'; '.join(words)}"


def _limits(task: Mapping[str, Any], curve: str) -> tuple[float, float] | None:
    """Room for all means; the band of a few seeds can be far wider, and is cut off."""
    means = [v for record in task["methods"].values() for v in record["curves"][curve]["mean"]]
    if not means:
        return None
    room = 0.12 * (max(means) - min(means)) or 1.0
    return min(means) - room, max(means) + room


def _line(axis: Any, curve: Mapping[str, Any], color: str, words: str) -> None:
    if not curve["x"]:
        return
    axis.plot(curve["x"], curve["mean"], color=color, label=words, linewidth=1.6)
    axis.fill_between(curve["x"], curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0)
