"""The page of the memory experiment: returns with and without memory, and normalized scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.reproduce import page
from trellis.reproduce.files import Record, write_json
from trellis.reproduce.kept_runs import files_of
from trellis.reproduce.memory.claims import claims
from trellis.reproduce.page import BLANK

Runs = Mapping[str, Mapping[str, Sequence[Record]]]
"""Kept runs by task and policy."""
FILES = {
    "memory.json": "Returns and scores of every task and policy.",
}
NAMES = {"gru": "GRU", "lstm": "LSTM", "none": "no memory", "full": "full observations"}


def write(out: Path, runs: Runs, made: Mapping[str, str]) -> None:
    """Write memory.json and the page.

    Args:
        out: Folder of the results.
        runs: Kept runs by task and policy.
        made: Command and commit that wrote the page.
    """
    rows = [
        _measure(task, policy, of_task)
        for task, of_task in runs.items()
        for policy in of_task
        if of_task[policy]
    ]
    write_json(out / "memory.json", {**made, "rows": rows})
    lines = [
        "# Memory",
        "",
        "The tasks hide a part of their state: the velocities, or a sign that is shown once. The"
        " score is 0 for the first episodes of training, which are random, and 1 for the same"
        " algorithm with full observations. `trellis reproduce memory` writes this page.",
        "",
        *page.claims_table(claims(rows), "Claims"),
        "## Returns",
        "",
        *page.table(
            ("task", "policy", "steps", "seeds", "mean return", "smallest", "largest", "score"),
            [_row(row) for row in rows],
        ),
        "## Command",
        "",
        *page.commands([("memory.json", made)]),
    ]
    page.write(out, lines, {**FILES, **files_of(out)})


def _measure(task: str, policy: str, runs: Mapping[str, Sequence[Record]]) -> dict[str, Any]:
    """Return the returns of one policy, and its score if full observations were trained."""
    returns = [run["mean_return"] for run in runs[policy]]
    score, full = None, runs.get("full")
    if full:
        best = np.mean([run["mean_return"] for run in full])
        random = np.mean([run["first_return"] for run in full])
        score = float((np.mean(returns) - random) / (best - random)) if best != random else None
    return {
        "task": task,
        "policy": policy,
        "steps": runs[policy][0]["steps"],
        "returns": returns,
        "mean": float(np.mean(returns)),
        "score": score,
    }


def _row(row: Record) -> list[str]:
    returns, score = row["returns"], row["score"]
    return [
        row["task"],
        NAMES[row["policy"]],
        f"{row['steps']:,}",
        str(len(returns)),
        *(f"{value:,.2f}" for value in (row["mean"], min(returns), max(returns))),
        BLANK if score is None else f"{score:.2f}",
    ]
