"""The figure of a task of the comparison, like Figure 4, from the task's JSON alone.

It shows the return against steps and against seconds, and the cost per time step that the paper
seems to plot, with a line at −1 where standing still achieves that.
"""

from pathlib import Path

from trellis.analysis import figures
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.files import Record

PANELS = (
    ("return_by_steps", "simulator steps", "mean return of training episodes"),
    ("return_by_seconds", "seconds of training", "mean return of training episodes"),
    ("cost_by_steps", "simulator steps", "cost per time step"),
)


def plot(title: str, task: Record, path: Path) -> None:
    """Plot one task: a line per method, the mean over seeds with its 95% band."""
    with figures.open_figure(path, columns=3, size=(16, 5.6)) as (figure, panels):
        axes = panels[0]
        for axis, (panel, across, up) in zip(axes, PANELS, strict=True):
            means: list[float] = []
            for method, record in task["methods"].items():
                curve = record["curves"][panel]
                means += curve["mean"]
                if curve["x"]:
                    color, name = METHODS[method].color, label(record)
                    figures.plot_band(axis, **curve, color=color, label=name, linewidth=1.6)
            axis.set(xlabel=across, ylabel=up, ylim=figures.limits(means))
            axis.set_xlim(left=0)
            axis.grid(alpha=0.25)
            if across == "simulator steps":
                figures.format_counts(axis)
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
        figure.suptitle(f"{title}, {task['iterations']} iterations{scale_words(title, task)}")


def label(record: Record) -> str:
    """Return the method, the swept setting and the number of seeds."""
    words = record["label"]
    if record["swept"]:
        words += f", {record['swept']['setting']} {record['swept']['value']:g}"
    count = len(record["runs"])
    return f"{words} ({count} seed{'s' * (count > 1)})"


def scale_words(name: str, task: Record) -> str:
    """Return what part of the paper's steps an iteration has."""
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
