"""The page of the recipe study: scores of every candidate against the presets as they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis.statistics import bootstrap, interquartile_mean, interval_text
from trellis.reproduce import page
from trellis.reproduce.files import Record, write_json
from trellis.reproduce.kept_runs import files_of
from trellis.reproduce.page import BLANK
from trellis.reproduce.recipe.candidates import BASELINE, CANDIDATES

Runs = Mapping[str, Mapping[str, Sequence[Record]]]
"""Kept runs by candidate and task."""


def write(out: Path, runs: Runs, goals: Mapping[str, float], made: Mapping[str, str]) -> None:
    """Write recipe.json and the page.

    Args:
        out: Folder of the results.
        runs: Kept runs by candidate and task.
        goals: The return of each task that counts as a score of 1.
        made: Command and commit that wrote the page.
    """
    rows = [_compare(name, runs, goals) for name in runs if any(runs[name].values())]
    write_json(out / "recipe.json", {**made, "goals": goals, "candidates": rows})
    lines = [
        "# What moves the return",
        "",
        "Every candidate changes the presets of all tasks in one way and trains for 1M steps. A"
        " score of 1 is the goal of the task. The interquartile mean covers the pairs of task and"
        " seed that both the candidate and the baseline have run. Seeds start at 100; they are not"
        " those of the page on [training](../training/README.md)."
        " `trellis reproduce recipe` writes this page.",
        "",
        "## Scores",
        "",
        *page.table(
            (
                *("candidate", "change", "runs", "interquartile mean", "95% interval"),
                *("baseline on the same seeds", "difference"),
            ),
            [_row(row) for row in rows],
        ),
        "## Mean return of each task",
        "",
        *page.table(
            ("candidate", *goals),
            [
                ("goal", *(f"{goal:,.0f}" for goal in goals.values())),
                *((row["candidate"], *(_mean(row["returns"][t]) for t in goals)) for row in rows),
            ],
        ),
        "## Command",
        "",
        "```sh",
        f"# written by commit {made['commit']}",
        made["command"],
        "```",
        "",
    ]
    page.write(out, lines, {"recipe.json": "Scores of every candidate.", **files_of(out)})


def _compare(name: str, runs: Runs, goals: Mapping[str, float]) -> dict[str, Any]:
    """Return the scores of a candidate, and of the baseline on the same tasks and seeds."""
    ours = {task: {run["seed"]: run["mean_return"] for run in runs[name][task]} for task in goals}
    base = runs[BASELINE.name]
    theirs = {task: {run["seed"]: run["mean_return"] for run in base[task]} for task in goals}
    both = {task: sorted(ours[task].keys() & theirs[task].keys()) for task in goals}
    shared = [task for task in goals if both[task]]

    def scores(returns: Mapping[str, Mapping[int, float]]) -> list[np.ndarray]:
        return [np.array([returns[t][seed] for seed in both[t]]) / goals[t] for t in shared]

    result: dict[str, Any] = {
        "candidate": name,
        "runs": sum(map(len, ours.values())),
        "returns": {task: list(values.values()) for task, values in ours.items()},
        "score": None,
        "interval_95": [None, None],
        "baseline": None,
    }
    if shared:
        score = bootstrap(interquartile_mean, scores(ours))
        result["score"], result["interval_95"] = score.value, score.interval
        result["baseline"] = interquartile_mean(scores(theirs))
    return result


def _row(row: Record) -> list[str]:
    score, baseline = row["score"], row["baseline"]
    known = score is not None
    return [
        row["candidate"],
        CANDIDATES[row["candidate"]].about,
        str(row["runs"]),
        f"{score:.3f}" if known else BLANK,
        interval_text(*row["interval_95"], spec=".3f", blank=BLANK),
        f"{baseline:.3f}" if known else BLANK,
        f"{score - baseline:+.3f}" if known else BLANK,
    ]


def _mean(returns: Sequence[float]) -> str:
    return f"{np.mean(returns):,.0f}" if len(returns) else BLANK
