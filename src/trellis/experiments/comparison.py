"""Section 8.1's comparison: runs what is missing, chooses where a setting was swept, compares.

`trellis reproduce cartpole` and `trellis reproduce locomotion`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trellis.experiments.comparison_runs import (
    METHODS,
    RUNS,
    TASKS,
    Method,
    Scale,
    Task,
    seed_plans,
    sweep_plans,
)
from trellis.experiments.sweep import RunPlan, execute
from trellis.runs.log import read_metrics

LAST = 0.1
"""The part of a run, at its end, that makes its final performance while training."""


@dataclass(frozen=True)
class Experiment:
    """What was asked for."""

    tasks: Sequence[Task]
    methods: Sequence[Method]
    seeds: int = 5
    scale: Scale = field(default_factory=Scale)
    runs: Path = RUNS
    parallel: int = 2

    @property
    def threads(self) -> int:
        """Of each run: several side by side have one each, a single one has all cores."""
        return 1 if self.parallel > 1 else 0


def experiment(
    tasks: Sequence[str],
    methods: Sequence[str] | None,
    seeds: int,
    scale: float,
    vine_scale: float | None,
    parallel: int,
    runs: Path = RUNS,
) -> Experiment:
    """The experiment of these names; raises in words where there is no such thing."""
    return Experiment(
        [_named(TASKS, name, "task") for name in tasks],
        [_named(METHODS, name, "method") for name in methods or METHODS],
        seeds,
        Scale(scale, scale if vine_scale is None else vine_scale),
        runs,
        parallel,
    )


def train(asked: Experiment, say: Callable[[str], None]) -> dict[tuple[str, str], float | None]:
    """Trains all that is asked for; by task and method, the value that a sweep chose."""
    pairs = [(task, method) for task in asked.tasks for method in asked.methods]
    where: Any = {"runs": asked.runs, "threads": asked.threads}
    swept = {
        (task, method): sweep_plans(task, method, asked.scale, **where)
        for task, method in pairs
        if method.swept
    }
    plain = [
        plan
        for task, method in pairs
        if not method.swept
        for plan in seed_plans(task, method, asked.seeds, asked.scale, **where)
    ]
    execute([*plain, *(p for plans in swept.values() for p in plans)], asked.parallel, say)
    chosen: dict[tuple[str, str], float | None] = {(t.name, m.name): None for t, m in pairs}
    for (task, method), plans in swept.items():
        best = choose(plans)
        value = getattr(best.config.step, method.swept or "")
        say(f"{task.name}, {method.label}: the best {method.swept} is {value:g}")
        chosen[task.name, method.name] = value
    winners = [
        plan
        for task, method in swept
        for plan in seed_plans(
            task, method, asked.seeds, asked.scale, chosen[task.name, method.name], **where
        )
    ]
    if winners:
        execute(winners, asked.parallel, say)
    return chosen


def choose(plans: Sequence[RunPlan]) -> RunPlan:
    """The one that did best at the end of its training."""
    return max(plans, key=lambda plan: final_return(plan.folder))


def final_return(folder: Path) -> float:
    """Mean return of the episodes in the last tenth of a run's iterations; -inf without any."""
    rows = read_metrics(folder)
    last = rows[-max(1, round(LAST * len(rows))) :]
    found = [
        row["episode_return_mean"] for row in last if row.get("episode_return_mean") is not None
    ]
    return float(np.mean(found)) if found else -np.inf


def _named(table: dict[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise ValueError(f"there is no {what} {name!r}; there are {', '.join(table)}")
    return table[name]
