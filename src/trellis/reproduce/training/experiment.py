"""Final returns and learning curves of the modern presets: `trellis reproduce training`.

Trains the missing runs, evaluates every final policy over 20 episodes without exploration noise,
and writes training.json, training.csv, curves.json, the figure and the page.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trellis import presets
from trellis.analysis import curves
from trellis.analysis.statistics import mean_interval
from trellis.policies.saved import SavedPolicy
from trellis.reproduce.experiment import TrainingExperiment, command
from trellis.reproduce.files import made_by, read_results, rounded, write_csv, write_json
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.reproduce.training import figure, page
from trellis.training.evaluation import evaluate_saved

EPISODES = 20
"""Number of episodes of an evaluation."""
FIRST_SEED = 20
"""First seed. Smaller seeds, and seeds from 100 on, were used to choose settings."""
COLUMNS = ("env", "seed", "steps", "mean_return", "std_return", "mean_length", "commit")


@dataclass(frozen=True)
class TrainingTask:
    """An environment and the mean return that a good run reaches."""

    env: str
    steps: int
    goal: float | None
    """Mean return to reach. None: more than the return at the start of training."""


TASKS = (
    TrainingTask("CartPole-v1", 100_000, 500),
    TrainingTask("InvertedDoublePendulum-v5", 1_000_000, 9_000),
    TrainingTask("Hopper-v5", 1_000_000, 3_100),
    TrainingTask("Walker2d-v5", 1_000_000, 4_300),
    TrainingTask("Swimmer-v5", 1_000_000, 340),
    TrainingTask("HalfCheetah-v5", 1_000_000, 4_500),
    TrainingTask("Pendulum-v1", 200_000, None),
    TrainingTask("Acrobot-v1", 100_000, None),
    TrainingTask("MountainCarContinuous-v0", 200_000, None),
)


@dataclass(frozen=True)
class Training(TrainingExperiment):
    """Final returns and learning curves of the modern presets."""

    name: ClassVar = "training"
    out: Path = Path("results/training")
    seeds: int = 5
    runs: Path = Path("runs/training")

    def run(self, say: Say, tasks: Sequence[TrainingTask] = TASKS) -> list[dict[str, Any]]:
        """Train the missing runs, evaluate all policies, and write the results."""
        planned = {task: self.plans(task) for task in tasks}
        everything = [plan for of_task in planned.values() for plan in of_task]
        execute(everything, self.parallel, say)
        results = [_summary(task, of_task) for task, of_task in planned.items()]
        record = {**made_by(command(self)), "episodes": EPISODES, "tasks": results}
        write_json(self.out / "training.json", record)
        rows = ({"env": result["env"], **row} for result in results for row in result["runs"])
        write_csv(self.out / "training.csv", COLUMNS, rows, line_end="\r\n")
        lines = {task.env: _curve(of_task) for task, of_task in planned.items()}
        write_json(self.out / "curves.json", {"source": "logs", "tasks": lines})
        self.write_pages()
        return results

    def write_pages(self) -> None:
        """Write the figure and the page from training.json and curves.json."""
        results = read_results(self.out / "training.json")
        lines = read_results(self.out / "curves.json")
        figure.plot(lines["tasks"], self.out / f"{page.FIGURE}.png")
        page.write(results, lines, self.out)

    def plans(self, task: TrainingTask) -> list[RunPlan]:
        """Return one run per seed."""
        config = dataclasses.replace(
            presets.resolve(task.env), total_steps=task.steps, max_iterations=None
        )
        return self.plan_seeds(
            self.runs / task.env, config, range(FIRST_SEED, FIRST_SEED + self.seeds)
        )


def _curve(plans: Sequence[RunPlan]) -> dict[str, list[float]]:
    """Return the mean return of training episodes over seeds, with its 95% band."""
    found = curves.band([curves.read_curve(plan.folder).line for plan in plans])
    return {name: rounded(values) for name, values in found._asdict().items()}


def _summary(task: TrainingTask, plans: Sequence[RunPlan]) -> dict[str, Any]:
    """Return the final returns of one task."""
    runs = [_run_record(plan) for plan in plans]
    score = mean_interval([run["mean_return"] for run in runs])
    return {
        "env": task.env,
        "steps": task.steps,
        "goal": task.goal,
        "first_return": float(np.mean([_first_return(plan) for plan in plans])),
        "mean_return": score.value,
        "interval_95": score.interval,
        "runs": runs,
    }


def _run_record(plan: RunPlan) -> dict[str, Any]:
    """Return the evaluation of the final policy of one run."""
    policy = SavedPolicy.load(plan.folder)
    result = evaluate_saved(policy, EPISODES)
    return {
        "seed": plan.config.seed,
        "steps": policy.steps,
        "mean_return": result.mean_return,
        "std_return": result.std_return,
        "mean_length": result.mean_length,
        "commit": plan.commit,
    }


def _first_return(plan: RunPlan) -> float:
    """Return the mean return of the first episodes that ended in training."""
    returns = (row.get("episode_return_mean") for row in plan.rows)
    return next(value for value in returns if value is not None)
