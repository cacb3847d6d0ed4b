"""The learning curves of Figure 5 from atari.json alone: score against steps, a panel per game.

A point is the mean over the training episodes that ended in a hundredth of a run. Every seed has
its own line, since interrupted runs end anywhere. Figure 5 shows the cost, which is minus the
score.
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
"""Largest number of points of a curve."""


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
    """Write a panel per game with a line per run, as PNG and SVG."""
    runs = [run for run in results["runs"] if run["curve"]["steps"]]
    games = [game for game in GAMES if any(run["game"] == game for run in runs)]
    if not games:
        return
    labels = dict.fromkeys(table.label(run) for run in runs)
    colors = dict(zip(labels, itertools.cycle(figures.COLORS), strict=False))
    with figures.open_grid(path, len(games), svg=True) as (figure, axes):
        from matplotlib.lines import Line2D

        for axis, game in zip(axes, games, strict=True):
            here = [run for run in runs if run["game"] == game]
            for run in here:
                score = [-cost for cost in run["curve"]["cost"]]
                axis.plot(run["curve"]["steps"], score, color=colors[table.label(run)])
            for random in (random for random in results["random"] if random["game"] == game):
                score = random["evaluation"]["mean_score"]
                axis.axhline(score, color=figures.GRAY, linewidth=1, linestyle=":")
            axis.set(title=GAMES[game], xlabel="steps")
            figures.format_counts(axis)
        figure.supylabel("mean score of training episodes")
        lines = [Line2D([], [], color=color) for color in colors.values()]
        lines.append(Line2D([], [], color=figures.GRAY, linestyle=":"))
        names = [*colors, "random actions"]
        figure.legend(
            lines, names, loc="outside lower center", ncols=3, labelcolor="linecolor", frameon=False
        )
