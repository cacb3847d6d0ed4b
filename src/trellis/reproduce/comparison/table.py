"""The data files of a comparison: a JSON per task, tables over all tasks, the claims.

A task's JSON holds the scores, and `kept_logs.py` keeps the logs, from which curves are computed.
A later command adds its methods. It replaces a method that is there already, but never by fewer or
smaller runs. The figures, tables and the page are made from these files alone, so tasks can be run
one at a time.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trellis.reproduce import files
from trellis.reproduce.comparison import figure, page
from trellis.reproduce.comparison.claims import claims
from trellis.reproduce.comparison.findings import SOLVED
from trellis.reproduce.comparison.improvement import with_improvement
from trellis.reproduce.comparison.kept_logs import read_logs
from trellis.reproduce.comparison.plans import ITERATIONS, METHODS, TASKS, Method
from trellis.reproduce.comparison.scores import curves
from trellis.reproduce.files import Record
from trellis.runs.folder import locked

SCORES = (
    *("task", "method", "setting", "value", "scale", "seeds", "mean_return", "low_95", "high_95"),
    *("mean_velocity", "median_length", "mean_minutes", "paper_minutes"),
)
"""The columns of scores.csv.

`setting` is the swept setting and `value` the chosen value. `scale` is the steps of an iteration as
a part of the paper's. `mean_return` is the mean return of the final policies, 20 episodes each
without exploration noise, with Student's interval over seeds. `mean_velocity` is in m/s.
`median_length` is the median over seeds of the median over episodes. `mean_minutes` is the time in
iterations, without evaluations. `paper_minutes` is from Table 2.
"""
RUNS = (
    *("task", "method", "role", "value", "seed", "run", "iterations", "steps", "minutes"),
    *("threads", "training_return", "mean_return", "std_return", "median_length", "mean_velocity"),
)
"""The columns of runs.csv; `role` is compared or swept."""
LOCK_SECONDS = 300.0
"""Longest time to wait for another command that writes results."""
BY_METHOD = ("methods", "sweeps", "videos")
"""Parts of a task's JSON that have an entry per method."""


def refuse_less(out: Path, task: str, method: Method, scale: float, seeds: int) -> None:
    """Raise a ResultsError if new runs of a method would replace more or larger ones."""
    record = read_tasks(out).get(task, {}).get("methods", {}).get(method.name)
    if record and (scale < record["scale"] or seeds < len(record["runs"])):
        raise files.ResultsError(
            f"{out / task}.json has {method.name} with {len(record['runs'])} seeds at scale"
            f" {record['scale']:g}; {seeds} seeds at scale {scale:g} would replace them. Write to"
            " another folder with --out, or move the file away"
        )


def write_task(out: Path, name: str, task: Record) -> None:
    """Add a task's results to its JSON, and write everything that is made from it."""
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, LOCK_SECONDS):
        files.write_json(out / f"{name}.json", merged(read_tasks(out).get(name, {}), task))
        refresh(out)


def merged(before: Record, task: Record) -> dict[str, Any]:
    """Return a task's results together with the earlier results of other methods."""
    result = dict(task)
    for part in BY_METHOD:
        # A sweep or a video of replaced runs does not belong to the new ones.
        kept = {k: v for k, v in before.get(part, {}).items() if k not in task["methods"]}
        found = {**kept, **task[part]}
        result[part] = {method: found[method] for method in METHODS if method in found}
    return result


def read_tasks(out: Path) -> dict[str, Any]:
    """Return the scores of all tasks in a folder, in the paper's order."""
    found = {name: files.read_json(out / f"{name}.json") for name in TASKS}
    return {name: task for name, task in found.items() if task}


def with_curves(out: Path, name: str, task: Record) -> dict[str, Any]:
    """Return a task's results with curves from the kept logs.

    Results from before logs were kept have their curves in the JSON.
    """
    methods = {}
    for method, record in task["methods"].items():
        logs = [log.rows for log in read_logs(out, name, method) if log.role == "compared"]
        found = curves(logs, record["iteration_steps"]) if logs else _old_curves(record)
        methods[method] = {**record, **found, **with_improvement(out, name, method)}
    return {**task, "methods": methods}


def _old_curves(record: Record) -> dict[str, Any]:
    """Return the curves of a record that has the cost per time step against steps."""
    cost = record["curves"].get("cost_by_steps")
    if cost is None:
        return {}
    steps = cost["x"][-1] if cost["x"] else 1.0
    reward = {
        "x": [ITERATIONS * x / steps for x in cost["x"]],
        "mean": [-value for value in cost["mean"]],
        "low": [-value for value in cost["high"]],
        "high": [-value for value in cost["low"]],
    }
    # The band of a single run has no width.
    band = [reward["low"][-1], reward["high"][-1]] if len(record["runs"]) > 1 else [None, None]
    final = {"mean": reward["mean"][-1], "interval_95": band}
    kept = {key: curve for key, curve in record["curves"].items() if key != "cost_by_steps"}
    return {"curves": {**kept, "reward_by_iterations": reward}, "final_reward": final}


def refresh(out: Path) -> None:
    """Write the figures, tables, claims and the page from the JSON files and the kept logs."""
    tasks = {name: with_curves(out, name, task) for name, task in read_tasks(out).items()}
    for name, task in tasks.items():
        figure.plot(task, out, name)
    files.write_csv(out / "scores.csv", SCORES, _score_rows(tasks))
    files.write_csv(out / "runs.csv", RUNS, _run_rows(tasks))
    found = claims(tasks)
    files.write_json(out / "claims.json", {"solved_means": SOLVED, "claims": found})
    page.write(out, tasks, found)


def _score_rows(tasks: Record) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for method, record in task["methods"].items():
            low, high = record["interval_95"]
            yield {
                **record,
                **(record["swept"] or {}),
                **{"task": name, "method": method, "seeds": len(record["runs"])},
                **{"low_95": low, "high_95": high},
            }


def _run_rows(tasks: Record) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for part, role in (("methods", "compared"), ("sweeps", "swept")):
            for method, record in task[part].items():
                value = (record.get("swept") or {}).get("value")
                for run in record["runs"]:
                    yield {"value": value, **run, "task": name, "method": method, "role": role}
