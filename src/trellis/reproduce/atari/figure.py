"""Figure 5 from atari.json alone: cost, the negative of the score, against steps, a panel a game.

A point is the mean over the training episodes that ended in a hundredth of a run. Every seed has a
line of its own, since runs that were interrupted end anywhere; dotted is what random actions cost.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import curves as plots
from trellis.reproduce.atari import table as atari_table
from trellis.reproduce.atari.plans import GAMES

POINTS = 100
COLUMNS = 4


def cost_curve(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The curve of a run, from its log: an episode counts as much as any other."""
    known = [row for row in rows if row.get("episode_return_mean") is not None]
    if not known:
        return {"steps": [], "cost": []}
    steps = np.array([row["steps"] for row in known], np.int64)
    cost = -np.array([row["episode_return_mean"] for row in known])
    episodes = np.array([row.get("episodes", 1) for row in known], np.float64)
    part = -(-POINTS * steps // steps[-1])
    weight = np.bincount(part, episodes)
    points = np.flatnonzero(weight)
    means = [np.bincount(part, episodes * v)[points] / weight[points] for v in (steps, cost)]
    return {
        k: [float(f"{v:.6g}") for v in m] for k, m in zip(("steps", "cost"), means, strict=True)
    }


def draw(results: Mapping[str, Any], path: Path) -> None:
    """A line for each of our rows, in the games that it has."""
    pyplot = plots.load_pyplot()
    from matplotlib.ticker import EngFormatter

    runs = [run for run in results["runs"] if run["curve"]["steps"]]
    games = [game for game in GAMES if any(run["game"] == game for run in runs)]
    if not games:
        return
    labels = list(dict.fromkeys(atari_table.label(run) for run in runs))
    colors = {name: plots.COLORS[i % len(plots.COLORS)] for i, name in enumerate(labels)}
    columns = min(COLUMNS, len(games))
    lines = -(-len(games) // columns)
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(
            lines,
            columns,
            figsize=(max(6.0, 4.2 * columns), 3.6 * lines + 0.6),
            squeeze=False,
            layout="constrained",
        )
        for axis, game in zip(axes.flat, games, strict=False):
            for run in runs:
                if run["game"] == game:
                    name = atari_table.label(run)
                    curve, color = run["curve"], colors[name]
                    axis.plot(curve["steps"], curve["cost"], color=color, label=name, linewidth=1.3)
            for random in results["random"]:
                if random["game"] == game:
                    cost = -random["evaluation"]["mean_score"]
                    axis.axhline(cost, color="#777777", linewidth=1, linestyle=":")
            axis.set(title=GAMES[game], xlabel="steps", ylabel="cost")
            axis.set_xlim(left=0)
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            axis.grid(alpha=0.25)
        for axis in axes.flat[len(games) :]:
            axis.set_visible(False)
        handles: dict[str, Any] = {}
        for axis in axes.flat:
            lines_here, names = axis.get_legend_handles_labels()
            handles |= dict(zip(names, lines_here, strict=True))
        handles["random actions"] = pyplot.Line2D([], [], color="#777777", linestyle=":")
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
