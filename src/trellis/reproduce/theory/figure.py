"""The figure of the theory experiment, from theory.json alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.analysis import figures
from trellis.analysis.figures import COLORS, GRAY, EndLabel
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRPO_DELTA = 0.01
"""δ of the paper's experiments (Table 2)."""
BLUE, VERMILION, GREEN, PURPLE, ORANGE, _, BLACK = COLORS
LINES = {
    "Algorithm 1": VERMILION,
    "conservative policy iteration": ORANGE,
    "policy iteration": BLACK,
}
"""Color of a method by its name."""
RADII = (BLUE, GREEN, PURPLE)
"""Colors of the trust regions, smallest δ first."""
SHORT = {"conservative policy iteration": "conservative\npolicy iteration"}
BOUNDS = (
    ("kl_form", "Eq. 9, with KL", VERMILION, "-"),
    ("theorem1", "Theorem 1", BLUE, "-"),
    ("eq6", "Eq. 6", ORANGE, "-"),
    ("appendix_a", "Appendix A", GREEN, "-"),
    ("surrogate_gain", "gain of L", GRAY, ":"),
    ("error", "error of L", BLACK, "-"),
)
"""Name in the results, label, color and style of the lines in the panel about tightness."""


def plot(results: Record, path: Path) -> None:
    """Plot learning on two problems, the tightness of the bounds, and the size of steps."""
    sweep = results["sweep"]
    shown = (
        f"Garnet, γ = {sweep['tightness_gamma']:g}",
        f"four rooms, γ = {sweep['gridworld_gamma']:g}",
    )
    with figures.open_grid(path, 4, height=3.1, columns=2, svg=True) as (figure, axes):
        for axis, problem in zip(axes, shown, strict=False):
            rows = [row for row in results["learning"] if row["problem"] == problem]
            _plot_learning(axis, rows, sweep["radii"])
            axis.set_title(f"Learning ({problem})", loc="left")
        _plot_tightness(axes[2], results["tightness"])
        axes[2].set_title(f"Bounds ({shown[0]})", loc="left")
        _plot_steps(axes[3], results["steps"])
        axes[3].set_title("First step (Garnet)", loc="left")
        figures.add_note(figure, "Solid: max KL ≤ δ. Dashed: mean KL ≤ δ. Bands: range over MDPs.")


def _plot_learning(axis: "Axes", rows: Sequence[Record], radii: Sequence[float]) -> None:
    """Plot the closed share of the gap against iterations."""
    colors = dict(LINES)
    for radius, color in zip(radii, RADII, strict=False):
        colors |= {f"{kind} KL ≤ {radius:g}": color for kind in ("max", "mean")}
    ends = []
    for row in rows:
        method: str = row["method"]
        color = colors.get(method, GRAY)
        # A logarithmic axis has no place for iteration 0, where every method is at 0.
        names = ("iterations", "closed_mean", "closed_low", "closed_high")
        x, mean, low, high = (row[name][1:] for name in names)
        if method.startswith("mean"):
            axis.plot(x, mean, "--", color=color)
            continue
        figures.plot_band(axis, x, mean, low, high, color=color, alpha=0.12)
        if method.startswith("max"):
            half = next((i for i, value in enumerate(mean) if value >= 0.5), 0)
            axis.annotate(
                f"δ = {method.split()[-1]}",
                (x[half], mean[half]),
                xytext=(8, -5),
                textcoords="offset points",
                color=color,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )
        else:
            ends.append(EndLabel(x[-1], mean[-1], SHORT.get(method, method), color))
    axis.set(xscale="log", xlabel="iteration", ylabel="closed share of the gap")
    figures.label_ends(axis, ends, gap=0.13)


def _plot_tightness(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the error of L and its bounds against total variation."""
    ends = []
    for name, label, color, style in BOUNDS:
        points = [(row["total_variation"], row[name]) for row in rows if row[name] is not None]
        x, y = zip(*points, strict=True)
        axis.plot(x, y, style, color=color)
        ends.append(EndLabel(x[-1], y[-1], label, color))
    axis.set(xlabel="max total variation", ylabel="error of L and its bounds")
    axis.set(xscale="log", yscale="log")
    figures.label_ends(axis, ends)


def _plot_steps(axis: "Axes", rows: Sequence[Record]) -> None:
    """Plot the KL of Algorithm 1's first step against the horizon."""
    horizon = [1.0 / (1.0 - row["gamma"]) for row in rows]
    first = [row["max_kl"] for row in rows]
    axis.plot(horizon, first, "o-", color=VERMILION, markersize=4)
    axis.axhline(TRPO_DELTA, color=BLUE)
    axis.set(xlabel="1 / (1 − γ), steps", ylabel="max KL of the step")
    axis.set(xscale="log", yscale="log")
    ends = [
        EndLabel(horizon[-1], first[-1], "Algorithm 1", VERMILION),
        EndLabel(horizon[-1], TRPO_DELTA, f"paper:\nδ = {TRPO_DELTA:g}", BLUE),
    ]
    figures.label_ends(axis, ends, gap=0.13)
