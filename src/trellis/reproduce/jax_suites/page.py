"""The page of the JAX experiment: final returns, learning curves, commands."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trellis.analysis import curves, figures
from trellis.analysis.statistics import interval_text, mean_interval
from trellis.reproduce import page
from trellis.reproduce.files import Record, write_json
from trellis.reproduce.kept_runs import curve_of, files_of

FIGURE = "curves"
SOURCE = "https://github.com/RobertTLange/gymnax"
FILES = {
    "jax.json": "Returns of every task and seed.",
}
COLUMNS = 3
"""Number of panels from left to right."""


def measure(name: str, task: Record, runs: Sequence[Record]) -> Record:
    """Return the row of a task.

    Args:
        name: Name of the task.
        task: Environment, steps, goal and published score.
        runs: Its kept runs.
    """
    returns = [run["mean_return"] for run in runs]
    last = [float(np.mean(run["curve"]["returns"][-5:])) for run in runs]
    return {
        "task": name,
        **task,
        "seeds": [run["seed"] for run in runs],
        "returns": returns,
        "training_returns": last,
        "seconds": [run["seconds"] for run in runs],
        "commits": sorted({run["commit"] for run in runs}),
    }


def write(
    out: Path, rows: Sequence[Record], runs: Mapping[str, Sequence[Record]], made: Mapping[str, str]
) -> None:
    """Write jax.json, the figure and the page.

    Args:
        out: Folder of the results.
        rows: Rows of `measure`.
        runs: Kept runs by task.
        made: Command and commit that wrote the page.
    """
    write_json(out / "jax.json", {**made, "rows": list(rows)})
    solved = [row for row in rows if row["goal"] is not None]
    games = [row for row in rows if row["goal"] is None]
    lines = [
        "# Environments in JAX",
        "",
        "The final policy of each run plays 100 episodes. In games it samples its actions, as in"
        " training; elsewhere it takes the most probable ones. `trellis reproduce jax` writes this"
        " page.",
        "",
        "## Tasks with a goal",
        "",
        *page.table(
            ("task", "steps", "seeds", "mean return", "lowest seed", "goal", "solved by"),
            [_goal_row(row) for row in solved],
        ),
        "## MinAtar",
        "",
        *([] if games else ["No game has been run yet.", ""]),
        *page.table(
            ("game", "steps", "seeds", "mean return", "95% interval", "lowest seed", "PPO"),
            [_game_row(row) for row in games],
        ),
        f"PPO: returns of the trained agents that [gymnax]({SOURCE}) lists, without seeds or steps."
        " It lists none for Seaquest, which comes from pgx here. Episodes of gymnax end after 1,000"
        " steps (Freeway: 2,500), so these scores are not those of the original games.",
        "",
        "## Each seed",
        "",
        *page.table(
            ("task", "final returns", "last 5% of training", "seconds"),
            [_seed_row(row) for row in rows],
        ),
        "Seconds are those of a busy machine.",
        "",
    ]
    if any(runs.values()):
        _plot({name: of_task for name, of_task in runs.items() if of_task}, out / f"{FIGURE}.png")
        lines += ["## Learning curves", "", *page.picture(FIGURE, "Learning curves")]
    commits = sorted({commit for row in rows for commit in row["commits"]})
    lines += [
        "## Command",
        "",
        "```sh",
        f"# runs: commits {', '.join(commits)}; page: commit {made['commit']}",
        made["command"],
        "```",
        "",
    ]
    page.write(out, lines, {**FILES, **files_of(out)})


def _goal_row(row: Record) -> list[str]:
    returns = np.asarray(row["returns"])
    reached = int((returns >= row["goal"]).sum())
    return [
        row["env"],
        f"{row['steps']:,}",
        str(len(returns)),
        *(f"{value:,.1f}" for value in (returns.mean(), returns.min(), row["goal"])),
        f"{reached} of {len(returns)}",
    ]


def _game_row(row: Record) -> list[str]:
    returns = np.asarray(row["returns"])
    low, high = mean_interval(row["returns"]).interval
    return [
        row["env"],
        f"{row['steps']:,}",
        str(len(returns)),
        f"{returns.mean():,.1f}",
        interval_text(low, high, blank=page.BLANK),
        f"{returns.min():,.1f}",
        page.cell(row["published"], ",.0f"),
    ]


def _seed_row(row: Record) -> list[str]:
    def numbers(values: Sequence[float], spec: str) -> str:
        return ", ".join(format(value, spec) for value in values)

    return [
        row["task"],
        numbers(row["returns"], ",.1f"),
        numbers(row["training_returns"], ",.1f"),
        numbers(row["seconds"], ",.0f"),
    ]


def _plot(runs: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Write a panel per task with the mean over seeds and its band."""
    columns = min(COLUMNS, len(runs))
    with figures.open_grid(path, len(runs), columns=columns, svg=True) as (figure, axes):
        for axis, (name, of_task) in zip(axes, runs.items(), strict=True):
            band = curves.band([curve_of(run) for run in of_task])
            figures.plot_band(axis, **band._asdict(), color=figures.COLORS[0])
            axis.set(title=name, xlabel="simulator steps")
            figures.format_counts(axis)
        figure.supylabel("mean return of training episodes")
        figures.add_note(figure, "Band: 95% interval over seeds.")
