"""Scores, curves and sweeps of a comparison as plain numbers, from finished runs.

A score is the mean return of the final policy over 20 episodes without exploration noise, for every
method. Curves show training: the mean over seeds on a common grid, with a 95% interval (Student's
t). Figure 4 seems to show the reward per time step of the stochastic policy against policy
iterations.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trellis.analysis.compare import LAST, training_return
from trellis.analysis.curves import Band, Line, band, seconds
from trellis.analysis.statistics import mean_interval
from trellis.reproduce.comparison.findings import TRPO
from trellis.reproduce.comparison.plans import ITERATIONS, ComparedTask, Method, swept_values
from trellis.reproduce.files import rounded
from trellis.reproduce.run_plan import RunPlan

Log = Sequence[Mapping[str, Any]]
"""The metrics of a run's iterations."""
POINTS = 200
"""Number of points of a curve."""
PAPER_MINUTES = {"swimmer": (5, 2), "hopper": (35, 14), "walker": (100, 40)}
"""Computation time of single path and of vine in Table 2."""


def run_record(plan: RunPlan, score: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the cost of one run and the scores of its final policy."""
    rows = plan.rows
    trained = training_return(rows)
    record = {
        "run": plan.folder.name,
        "seed": plan.config.seed,
        "commit": plan.commit,
        "iterations": rows[-1]["iteration"],
        "steps": rows[-1]["steps"],
        "minutes": round(float(seconds(rows)[-1]) / 60, 2),
        "threads": plan.threads,
        "training_return": trained if np.isfinite(trained) else None,
    }
    return {**record, **(score or {})}


def method_record(
    task: ComparedTask,
    method: Method,
    scale: float,
    plans: Sequence[RunPlan],
    scores: Sequence[Mapping[str, Any]],
    value: float | None,
) -> dict[str, Any]:
    """Return the scores and curves of one method on one task."""
    runs = [run_record(plan, score) for plan, score in zip(plans, scores, strict=True)]
    score = mean_interval([run["mean_return"] for run in runs])
    minutes = None
    # The paper's times are those of full-size iterations.
    if scale == 1 and method.name in TRPO and task.name in PAPER_MINUTES:
        minutes = PAPER_MINUTES[task.name][method.vine is not None]
    record = {
        "label": method.label,
        "scale": scale,
        "swept": None if value is None else {"setting": method.swept, "value": value},
        "mean_return": score.value,
        "interval_95": score.interval,
        "mean_minutes": float(np.mean([run["minutes"] for run in runs])),
        "paper_minutes": minutes,
        "iteration_steps": plans[0].config.total_steps // ITERATIONS if method.search else None,
        "runs": runs,
    }
    if all("mean_velocity" in run for run in runs):
        record["mean_velocity"] = float(np.mean([run["mean_velocity"] for run in runs]))
        record["median_length"] = float(np.median([run["median_length"] for run in runs]))
    return record


def curves(logs: Sequence[Log], iteration_steps: int | None = None) -> dict[str, Any]:
    """Return the curves of a method and its reward per time step in the last tenth of training.

    Args:
        logs: Metrics of each run.
        iteration_steps: Simulator steps that count as a policy iteration; None for methods whose
            own iterations count.
    """
    iterations = functools.partial(policy_iterations, iteration_steps=iteration_steps)
    last = [reward_per_step(rows)[-max(1, round(LAST * len(rows))) :].mean() for rows in logs]
    final = mean_interval(last)
    return {
        "curves": {
            "return_by_steps": curve(logs, steps, returns),
            "return_by_seconds": curve(logs, seconds, returns),
            "reward_by_iterations": curve(logs, iterations, reward_per_step),
        },
        "final_reward": {"mean": final.value, "interval_95": final.interval},
    }


def sweep_record(
    task: ComparedTask, method: Method, plans: Sequence[RunPlan], chosen: float
) -> dict[str, Any]:
    """Return all runs of a sweep and the chosen value."""
    values = swept_values(task, method)
    return {
        "setting": method.swept,
        "chosen": chosen,
        "chosen_is_at_the_edge": chosen in (values[0], values[-1]),
        "runs": [
            {"value": value, **run_record(plan, None)}
            for value, plan in zip(values, plans, strict=True)
        ],
    }


def steps(rows: Log) -> np.ndarray:
    """Return the simulator steps up to each iteration."""
    return _column(rows, "steps")


def returns(rows: Log) -> np.ndarray:
    """Return the mean return of the episodes that ended in each iteration; NaN if none did."""
    return _column(rows, "episode_return_mean")


def policy_iterations(rows: Log, iteration_steps: int | None = None) -> np.ndarray:
    """Return the number of policy iterations up to each row."""
    if iteration_steps is None:
        return _column(rows, "iteration")
    return steps(rows) / iteration_steps


def reward_per_step(rows: Log) -> np.ndarray:
    """Return the mean reward of all time steps of each iteration.

    Earlier logs do not have it. There it is that of the episodes that ended.
    """
    by_episodes = returns(rows) / _column(rows, "episode_length_mean")
    logged = _column(rows, "reward_per_step")
    return np.where(np.isfinite(logged), logged, by_episodes)


def curve(
    logs: Sequence[Log], across: Callable[[Log], np.ndarray], up: Callable[[Log], np.ndarray]
) -> dict[str, list[float]]:
    """Return the mean over runs and its 95% interval, on a grid that all runs cover.

    It is empty if all runs cover no point, which can happen with seconds of a busy machine.
    """
    points = [(across(rows), up(rows)) for rows in logs]
    lines = [Line(x[np.isfinite(y)], y[np.isfinite(y)]) for x, y in points if np.isfinite(y).any()]
    if not lines or max(line.x[0] for line in lines) > min(line.x[-1] for line in lines):
        return {name: [] for name in Band._fields}
    return {name: rounded(values) for name, values in band(lines, POINTS)._asdict().items()}


def _column(rows: Log, name: str) -> np.ndarray:
    return np.array([row.get(name) for row in rows], np.float64)  # None becomes NaN.
