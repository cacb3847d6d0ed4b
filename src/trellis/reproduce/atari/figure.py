"""Figure 5 from atari.json alone: cost, the negative of the score, against steps, per game.

A point is the mean over the training episodes that ended in a hundredth of a run. Every seed has
its own line, since interrupted runs end anywhere. The dotted line is the cost of random actions.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import figures
from trellis.reproduce.atari import table
from trellis.reproduce.atari.plans import GAMES
from trellis.reproduce.files import Record, rounded

POINTS = 100
COLUMNS = 4
RANDOM_COLOR = "#777777"


def cost_curve(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the curve of a run from its log; every episode has the same weight."""
    known = [row for row in rows if row.get("episode_return_mean") is not None]
    if not known:
        return {"steps": [], "cost": []}
    steps = np.array([row["steps"] for row in known], np.int64)
    cost = -np.array([row["episode_return_mean"] for row in known])
    episodes = np.array([row.get("episodes", 1) for row in known], np.float64)
    part = -(-POINTS * steps // steps[-1])
    weight = np.bincount(part, episodes)
    points = np.flatnonzero(weight)
    return {
        name: rounded(np.bincount(part, episodes * values)[points] / weight[points])
        for name, values in (("steps", steps), ("cost", cost))
    }


def plot(results: Record, path: Path) -> None:
    """Plot a line per run in a panel per game."""
    runs = [run for run in results["runs"] if run["curve"]["steps"]]
    games = [game for game in GAMES if any(run["game"] == game for run in runs)]
    if not games:
        return
    labels = dict.fromkeys(table.label(run) for run in runs)
    colors = dict(zip(labels, itertools.cycle(figures.COLORS), strict=False))
    columns = min(COLUMNS, len(games))
    lines = -(-len(games) // columns)
    size = (max(6.0, 4.2 * columns), 3.6 * lines + 0.6)
    with figures.open_figure(path, lines, columns, size=size) as (figure, axes):
        from matplotlib.lines import Line2D

        handles: dict[str, Any] = {}
        for axis, game in zip(axes.flat, games, strict=False):
            for run in runs:
                if run["game"] == game:
                    curve, name = run["curve"], table.label(run)
                    (handles[name],) = axis.plot(
                        curve["steps"], curve["cost"], color=colors[name], linewidth=1.3
                    )
            for random in results["random"]:
                if random["game"] == game:
                    cost = -random["evaluation"]["mean_score"]
                    axis.axhline(cost, color=RANDOM_COLOR, linewidth=1, linestyle=":")
            axis.set(title=GAMES[game], xlabel="steps", ylabel="cost")
            figures.format_counts(axis)
            axis.grid(alpha=0.25)
        for axis in axes.flat[len(games) :]:
            axis.set_visible(False)
        handles["random actions"] = Line2D([], [], color=RANDOM_COLOR, linestyle=":")
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False
        )
