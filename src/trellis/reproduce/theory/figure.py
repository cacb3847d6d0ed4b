"""The figure of `trellis.reproduce.theory.experiment`, from the results that it wrote alone."""

from pathlib import Path
from typing import Any

TRPO_DELTA = 0.01
"""δ of the paper's experiments (Table 2), for comparison with what C allows."""


def draw(results: dict[str, Any], path: Path) -> None:
    """The figure, from what `run` wrote alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    learning = results["learning"]
    sweep = results["sweep"]
    shown = (
        f"Garnet, γ = {sweep['tightness_gamma']:g}",
        f"four rooms, γ = {sweep['gridworld_gamma']:g}",
    )
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8.5), layout="constrained")
    for axis, problem in zip(axes[0], shown, strict=True):
        _draw_learning(axis, [row for row in learning if row["problem"] == problem])
        axis.set_title(problem)
    axes[0, 1].legend(fontsize=8, loc="center right")
    _draw_tightness(axes[1, 0], results["tightness"], sweep["tightness_gamma"])
    _draw_steps(axes[1, 1], results["steps"])
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_learning(axis: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        method = row["method"]
        style = {"mean": "--", "max": "-"}.get(method.split()[0], "-")
        color = _color(method)
        # Iteration 0 has no place on a logarithmic axis; all start at 0.
        axis.plot(row["iterations"][1:], row["closed_mean"][1:], style, color=color, label=method)
        if not method.startswith("mean"):
            axis.fill_between(
                row["iterations"][1:],
                row["closed_low"][1:],
                row["closed_high"][1:],
                color=color,
                alpha=0.12,
                linewidth=0,
            )
    axis.set(xscale="log", xlabel="iteration", ylabel="share of the gap to the optimum closed")
    axis.grid(alpha=0.3)


def _color(method: str) -> str:
    fixed = {
        "Algorithm 1": "tab:red",
        "conservative policy iteration": "tab:orange",
        "policy iteration": "black",
    }
    by_radius = {"0.01": "tab:green", "0.1": "tab:blue", "1": "tab:purple"}
    return fixed.get(method) or by_radius.get(method.split()[-1], "tab:gray")


def _draw_tightness(axis: Any, rows: list[dict[str, Any]], gamma: float) -> None:
    alpha = [row["total_variation"] for row in rows]
    for name, label, style in (
        ("kl_form", "C · max KL (Eq. 9)", "-"),
        ("theorem1", "Theorem 1", "-"),
        ("appendix_a", "Appendix A before its last step", "-"),
        ("eq6", "Kakade and Langford (Eq. 6)", "-"),
        ("error", "|η − L|, exact", "k-"),
        ("surrogate_gain", "gain of L, exact", "k:"),
    ):
        axis.plot(alpha, [row[name] for row in rows], style, label=label)
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="max total variation between old and new policy",
        ylabel="error of L and its bounds",
        title=f"How tight the bounds are (Garnet, γ = {gamma:g})",
    )
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


def _draw_steps(axis: Any, rows: list[dict[str, Any]]) -> None:
    horizon = [1.0 / (1.0 - row["gamma"]) for row in rows]
    axis.plot(horizon, [row["max_kl"] for row in rows], "o-", color="tab:red", label="Algorithm 1")
    axis.axhline(
        TRPO_DELTA, color="tab:green", label=f"δ = {TRPO_DELTA:g}, the paper's experiments"
    )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="1 / (1 − γ)",
        ylabel="max KL of the first step",
        title="How small the steps are that C allows (Garnet)",
    )
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)
