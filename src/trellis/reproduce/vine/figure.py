"""The figure of `trellis.reproduce.vine.variance`, from the results that it wrote alone."""

from pathlib import Path
from typing import Any


def draw(results: dict[str, Any], path: Path) -> None:
    """Left, what common random numbers bring; middle and right, gradients per Q-value and step."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = results["rows"]
    labels = [f"{row['task']}\nafter {row['iterations']} iterations" for row in rows]
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.8), layout="constrained")
    differences = {
        "common random numbers": [row["q_difference_var_common"] for row in rows],
        "separate noise": [row["q_difference_var_separate"] for row in rows],
    }
    _bars(axes[0], labels, differences)
    axes[0].set_title("variance of Q̂(s, a₁) − Q̂(s, a₂)")
    for axis, key, what in (
        (axes[1], "per_q_value", "Q-value"),
        (axes[2], "per_step", "simulator step"),
    ):
        names = list(rows[0]["gradients"])
        _bars(axis, labels, {name: [r["gradients"][name][key] for r in rows] for name in names})
        axis.set_title(f"gradient: noise over signal, per {what}")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


COLORS = {
    "vine": "tab:green",
    "common random numbers": "tab:green",
    "vine, separate noise": "tab:olive",
    "separate noise": "tab:olive",
    "single path": "tab:blue",
}


def _bars(axis: Any, labels: list[str], series: dict[str, list[float]]) -> None:
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        places = [place + (index - (len(series) - 1) / 2) * width for place in range(len(labels))]
        bars = axis.bar(places, values, width, label=name, color=COLORS[name])
        axis.bar_label(bars, labels=[f"{value:.2g}" for value in values], fontsize=7)
    axis.set_yscale("log")
    axis.margins(y=0.25)
    axis.set_xticks(range(len(labels)), labels, fontsize=8)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3, axis="y")
