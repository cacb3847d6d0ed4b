"""What the runs of a comparison say: scores, curves and sweeps as plain numbers.

A score is the mean return of the final policy over 20 episodes without exploration noise: the same
for methods that explore in actions and in θ. Curves are of the episodes that were sampled while
training, as in Figure 4, on a grid that the seeds share, with a 95% interval (Student's t).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import curves as plots
from trellis.analysis.compare import training_return
from trellis.analysis.statistics import mean_interval
from trellis.reproduce.comparison.plans import Method, Scale, Task, swept_values
from trellis.reproduce.gait import Episodes
from trellis.reproduce.sweep import RunPlan
from trellis.runs.folder import read_config
from trellis.runs.log import read_metrics

POINTS = 200
PAPER_MINUTES = {
    ("swimmer", "trpo"): 5,
    ("hopper", "trpo"): 35,
    ("walker", "trpo"): 100,
    ("swimmer", "trpo-vine"): 2,
    ("hopper", "trpo-vine"): 14,
    ("walker", "trpo-vine"): 40,
    ("swimmer", "trpo-vine-of-states"): 2,
    ("hopper", "trpo-vine-of-states"): 14,
    ("walker", "trpo-vine-of-states"): 40,
}
"""Table 2, computation time."""


def run_record(plan: RunPlan, episodes: Episodes | None) -> dict[str, Any]:
    """One run: what it took, and what its final policy does."""
    rows = read_metrics(plan.folder)
    trained = training_return(rows)
    record = {
        "run": plan.folder.name,
        "seed": plan.seed,
        "commit": plan.commit,
        "iterations": rows[-1]["iteration"],
        "steps": rows[-1]["steps"],
        "minutes": round(float(seconds(rows)[-1]) / 60, 2),
        "threads": read_config(plan.folder).threads,
        "training_return": trained if np.isfinite(trained) else None,
    }
    return record if episodes is None else {**record, **episodes.summary()}


def method_record(
    task: Task,
    method: Method,
    scale: Scale,
    plans: Sequence[RunPlan],
    episodes: Sequence[Episodes],
    value: float | None,
) -> dict[str, Any]:
    """A line of the table and of the figure."""
    runs = [run_record(plan, played) for plan, played in zip(plans, episodes, strict=True)]
    mean, low, high = mean_interval([run["mean_return"] for run in runs])
    logs = [read_metrics(plan.folder) for plan in plans]
    record = {
        "label": method.label,
        "scale": scale.of(method),
        "swept": None if value is None else {"setting": method.swept, "value": value},
        "mean_return": mean,
        "interval_95": [None if np.isnan(end) else end for end in (low, high)],
        "mean_minutes": float(np.mean([run["minutes"] for run in runs])),
        # Of smaller iterations they say nothing.
        "paper_minutes": (
            PAPER_MINUTES.get((task.name, method.name)) if scale.of(method) == 1 else None
        ),
        "runs": runs,
        "curves": {
            "return_by_steps": curve(logs, steps, returns),
            "return_by_seconds": curve(logs, seconds, returns),
            "cost_by_steps": curve(logs, steps, cost_per_step),
        },
    }
    if all("mean_velocity" in run for run in runs):
        record["mean_velocity"] = float(np.mean([run["mean_velocity"] for run in runs]))
        record["median_length"] = float(np.median([run["median_length"] for run in runs]))
    return record


def sweep_record(
    task: Task, method: Method, plans: Sequence[RunPlan], chosen: float
) -> dict[str, Any]:
    """All runs of a sweep, and the value that it chose."""
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


def steps(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Simulator steps up to and with each iteration."""
    return np.array([row["steps"] for row in rows], np.float64)


def seconds(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Time spent in iterations up to and with each; evaluations and pauses do not count."""
    return plots.seconds(rows)


def returns(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Mean return of the episodes that ended in each iteration; NaN if none did."""
    return np.array([_number(row.get("episode_return_mean")) for row in rows])


def cost_per_step(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """What Figure 4 seems to plot: minus the reward of a time step, over whole episodes."""
    length = np.array([_number(row.get("episode_length_mean")) for row in rows])
    return -returns(rows) / length


def curve(logs: Sequence[Sequence[Mapping[str, Any]]], across: Any, up: Any) -> dict[str, Any]:
    """Mean and 95% interval over runs on a grid from the last of their starts to the first end."""
    lines = []
    for rows in logs:
        x, y = across(rows), up(rows)
        known = np.isfinite(y)
        if known.any():
            lines.append(plots.Curve(Path(), {}, x[known], y[known]))
    if not lines:
        return {"x": [], "mean": [], "low": [], "high": []}
    if len(lines) == 1:
        x = np.linspace(lines[0].x[0], lines[0].x[-1], POINTS)
        y = np.interp(x, lines[0].x, lines[0].y)
        band = plots.Band(x, y, y, y)
    else:
        band = plots.band(lines, POINTS)
    return {name: [float(f"{v:.6g}") for v in values] for name, values in band._asdict().items()}


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)
