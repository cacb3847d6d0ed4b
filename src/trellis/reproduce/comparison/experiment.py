"""Section 8.1's comparison: runs what is missing, chooses where a setting was swept, compares.

`trellis reproduce cartpole` and `trellis reproduce locomotion`. The runs are in
`comparison_runs.py`, what is made of them in `comparison_results.py`, `comparison_claims.py` and
`comparison_files.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis.analysis.compare import training_return
from trellis.reproduce import gait
from trellis.reproduce.comparison import plans as comparison_runs
from trellis.reproduce.comparison.claims import OURS, TRPO
from trellis.reproduce.comparison.files import refuse_less, write_task
from trellis.reproduce.comparison.plans import (
    METHODS,
    RUNS,
    TASKS,
    Method,
    Scale,
    Task,
    seed_plans,
    sweep_plans,
)
from trellis.reproduce.comparison.results import method_record, sweep_record
from trellis.reproduce.sweep import RunPlan, execute
from trellis.runs.log import read_metrics
from trellis.runs.provenance import commit

Say = Callable[[str], None]


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
    def _where(self) -> dict[str, Any]:
        # Several runs side by side have a thread each, a single one has all cores.
        return {"runs": self.runs, "threads": 1 if self.parallel > 1 else 0}

    def swept(self, task: Task, method: Method) -> list[RunPlan]:
        """A run of each value of what a method needs to have set; none, if there is no such."""
        return sweep_plans(task, method, self.scale, **self._where) if method.swept else []

    def compared(self, task: Task, method: Method, value: float | None) -> list[RunPlan]:
        """A run a seed."""
        return seed_plans(task, method, self.seeds, self.scale, value, **self._where)

    def command(self, task: Task, out: Path) -> str:
        """What makes the results of a task in a folder."""
        what = "cartpole" if task.name == "cartpole" else f"locomotion --tasks {task.name}"
        methods = " ".join(method.name for method in self.methods)
        words = f"trellis reproduce {what} --methods {methods} --seeds {self.seeds}"
        if self.scale != Scale():
            words += f" --scale {self.scale.single_path:g} --vine-scale {self.scale.vine:g}"
        return f"{words} --parallel {self.parallel} --out {out}"


def experiment(
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    scale: float,
    vine_scale: float | None,
    parallel: int,
) -> Experiment:
    """The experiment of these names; raises in words where there is no such thing."""
    standard = [method.name for method in METHODS.values() if not method.optional]
    others = [name for name in methods if name in METHODS and METHODS[name].optional]
    if "cartpole" in tasks and others:
        raise ValueError(
            f"{others[0]} has the steps of Table 2, which has no column for the cart-pole: use"
            " trpo-vine"
        )
    return Experiment(
        [_named(TASKS, name, "task") for name in tasks],
        [_named(METHODS, name, "method") for name in methods or standard],
        seeds,
        Scale(scale, scale if vine_scale is None else vine_scale),
        parallel=parallel,
    )


def run(asked: Experiment, out: Path, say: Say, *, videos: bool = True) -> None:
    """Trains what is missing, and writes the results of each task to the folder `out`."""
    for task in asked.tasks:
        for method in asked.methods:
            refuse_less(out, task.name, method, asked.scale.of(method), asked.seeds)
    chosen = train(asked, say)
    for task in asked.tasks:
        say(f"Watching the final policies of {task.name}")
        write_task(out, task.name, _results(asked, task, chosen, out, say, videos))


def train(asked: Experiment, say: Say) -> dict[tuple[str, str], float | None]:
    """Trains all that is asked for; by task and method, the value that a sweep chose."""
    pairs = [(task, method) for task in asked.tasks for method in asked.methods]
    first = [
        plan
        for task, method in pairs
        for plan in asked.swept(task, method) or asked.compared(task, method, None)
    ]
    execute(first, asked.parallel, say)
    chosen: dict[tuple[str, str], float | None] = {}
    for task, method in pairs:
        chosen[task.name, method.name] = value = choose(method, asked.swept(task, method))
        if value is not None:
            say(f"{task.name}, {method.label}: the best {method.swept} is {value:g}")
    winners = [
        plan
        for task, method in pairs
        if method.swept
        for plan in asked.compared(task, method, chosen[task.name, method.name])
    ]
    if winners:
        execute(winners, asked.parallel, say)
    return chosen


def choose(method: Method, plans: Sequence[RunPlan]) -> float | None:
    """The value of the run that did best at the end of its training; None without a sweep."""
    if not plans or method.swept is None:
        return None
    best = max(plans, key=lambda plan: training_return(read_metrics(plan.folder)))
    return float(getattr(best.config.step, method.swept))


def _results(
    asked: Experiment,
    task: Task,
    chosen: dict[tuple[str, str], float | None],
    out: Path,
    say: Say,
    videos: bool,
) -> dict[str, Any]:
    methods, sweeps, films = {}, {}, {}
    for method in asked.methods:
        value = chosen[task.name, method.name]
        plans = asked.compared(task, method, value)
        played = [gait.watch(plan.folder) for plan in plans]
        methods[method.name] = {
            **method_record(task, method, asked.scale, plans, played, value),
            "command": asked.command(task, out),
            "commit": commit(),
        }
        if value is not None:
            sweeps[method.name] = sweep_record(task, method, asked.swept(task, method), value)
        if videos and task.moves and method.name in (*TRPO, *OURS):
            name = f"{task.name}-{method.name}.mp4"
            out.mkdir(parents=True, exist_ok=True)
            failure = gait.film(_typical(plans, played).folder, out / name)
            if failure is None:
                films[method.name] = name
            else:
                say(f"no video of {task.name}, {method.label}: {failure}")
    return {
        "env": task.env,
        "iterations": comparison_runs.ITERATIONS,
        "standing_reward": task.standing_reward,
        "methods": methods,
        "sweeps": sweeps,
        "videos": films,
    }


def _typical(plans: Sequence[RunPlan], played: Sequence[gait.Episodes]) -> RunPlan:
    """The run in the middle; of two, the better."""
    order = sorted(range(len(plans)), key=lambda index: played[index].returns.mean())
    return plans[order[len(order) // 2]]


def _named(table: dict[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise ValueError(f"there is no {what} {name!r}; there are {', '.join(table)}")
    return table[name]
