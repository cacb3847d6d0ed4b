"""The figure of the theory experiment, from theory.json alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.analysis import figures
from trellis.reproduce.files import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRPO_DELTA = 0.01
"""δ of the paper's experiments (Table 2), for comparison with what C allows."""
COLORS = {
    "Algorithm 1": "tab:red",
    "conservative policy iteration": "tab:orange",
    "policy iteration": "black",
    **{"0.01": "tab:green", "0.1": "tab:blue", "1": "tab:purple"},
}
"""By the name of a method, or by the δ at its end."""
BOUNDS = (
    ("kl_form", "C · max KL (Eq. 9)", "-"),
    ("theorem1", "Theorem 1", "-"),
    ("appendix_a", "Appendix A before its last step", "-"),
    ("eq6", "Kakade and Langford (Eq. 6)", "-"),
    ("error", "|η − L|, exact", "k-"),
    ("surrogate_gain", "gain of L, exact", "k:"),
)


def plot(results: Record, path: Path) -> None:
    """Plot learning on two problems, the tightness of the bounds, and the length of steps."""
    sweep = results["sweep"]
    shown = (
        f"Garnet, γ = {sweep['tightness_gamma']:g}",
        f"four rooms, γ = {sweep['gridworld_gamma']:g}",
    )
    with figures.open_figure(path, 2, 2, size=(12, 8.5), boxed=True) as (_, axes):
        for axis, problem in zip(axes[0], shown, strict=True):
            _plot_learning(axis, [row for row in results["learning"] if row["problem"] == problem])
            axis.set_title(problem)
        axes[0, 1].legend(fontsize=8, loc="center right")
        tightness, steps = axes[1]
        rows = results["tightness"]
        for name, label, style in BOUNDS:
            alpha = [row["total_variation"] for row in rows]
            tightness.plot(alpha, [row[name] for row in rows], style, label=label)
        tightness.set(
            xlabel="max total variation between old and new policy",
            ylabel="error of L and its bounds",
            title=f"How tight the bounds are ({shown[0]})",
        )
        rows = results["steps"]
        horizon = [1.0 / (1.0 - row["gamma"]) for row in rows]
        first = [row["max_kl"] for row in rows]
        steps.plot(horizon, first, "o-", color="tab:red", label="Algorithm 1")
        label = f"δ = {TRPO_DELTA:g}, the paper's experiments"
        steps.axhline(TRPO_DELTA, color="tab:green", label=label)
        steps.set(
            xlabel="1 / (1 − γ)",
            ylabel="max KL of the first step",
            title="How small the steps are that C allows (Garnet)",
        )
        for axis in axes[1]:
            axis.set(xscale="log", yscale="log")
            axis.legend(fontsize=8)
        for axis in axes.flat:
            axis.grid(alpha=0.3)


def _plot_learning(axis: "Axes", rows: Sequence[Record]) -> None:
    for row in rows:
        method = row["method"]
        color = COLORS.get(method) or COLORS.get(method.split()[-1], "tab:gray")
        # Iteration 0 has no place on a logarithmic axis; all start at 0.
        names = ("iterations", "closed_mean", "closed_low", "closed_high")
        x, mean, low, high = (row[name][1:] for name in names)
        if method.startswith("mean"):
            axis.plot(x, mean, "--", color=color, label=method)
        else:
            figures.plot_band(axis, x, mean, low, high, color=color, alpha=0.12, label=method)
    axis.set(xscale="log", xlabel="iteration", ylabel="share of the gap to the optimum closed")
