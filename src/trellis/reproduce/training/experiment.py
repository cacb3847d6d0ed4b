"""Final returns and learning curves of the modern presets: `trellis reproduce training`.

Trains the missing runs, evaluates every final policy over 20 episodes without exploration noise,
and writes training.json, training.csv, curves.json, the figure and the page. Every finished run is
kept as a line in `runs/`, so runs whose folders are lost are not repeated. Tasks without a kept run
stay as they are in training.json.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trellis import presets
from trellis.analysis import curves
from trellis.analysis.statistics import bootstrap, interquartile_mean, mean_interval
from trellis.reproduce.experiment import TrainingExperiment, command, look_up
from trellis.reproduce.files import (
    Record,
    made_by,
    read_json,
    read_results,
    rounded,
    write_csv,
    write_json,
)
from trellis.reproduce.kept_runs import KeptRuns, curve_of
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say
from trellis.reproduce.training import figure, page

EPISODES = 20
"""Number of episodes of an evaluation."""
FIRST_SEED = 30
"""First seed. Smaller seeds, and seeds from 100 on, were used to choose settings or have been seen
while settings were chosen."""
COLUMNS = ("env", "seed", "steps", "mean_return", "std_return", "mean_length", "seconds", "commit")


@dataclass(frozen=True)
class TrainingTask:
    """An environment and the mean return that a good run reaches."""

    env: str
    steps: int
    goal: float | None
    """Mean return to reach. None: more than the return at the start of training."""
    seeds: int | None = None
    """Number of seeds; None for the experiment's number."""

    @property
    def name(self) -> str:
        """Name of the task on the command line and in the results."""
        return self.env if self.steps <= 1_000_000 else f"{self.env}-{self.steps // 1_000_000}M"


TASKS = (
    TrainingTask("Hopper-v5", 1_000_000, 3_620),
    TrainingTask("Walker2d-v5", 1_000_000, 4_940),
    TrainingTask("Swimmer-v5", 1_000_000, 360),
    TrainingTask("HalfCheetah-v5", 1_000_000, 6_000),
    TrainingTask("InvertedDoublePendulum-v5", 1_000_000, 9_300),
    TrainingTask("InvertedPendulum-v5", 1_000_000, 1_000),
    TrainingTask("Reacher-v5", 1_000_000, -4.5),
    TrainingTask("Pusher-v5", 1_000_000, -35),
    TrainingTask("Ant-v5", 1_000_000, 4_000),
    TrainingTask("Humanoid-v5", 1_000_000, 1_500),
    TrainingTask("HumanoidStandup-v5", 1_000_000, None),
    TrainingTask("CartPole-v1", 100_000, 500),
    TrainingTask("Pendulum-v1", 200_000, None),
    TrainingTask("Acrobot-v1", 100_000, None),
    TrainingTask("MountainCarContinuous-v0", 200_000, None),
    TrainingTask("Ant-v5", 3_000_000, 5_200, seeds=5),
    TrainingTask("Humanoid-v5", 3_000_000, 5_200, seeds=5),
)
BY_NAME = {task.name: task for task in TASKS}


@dataclass(frozen=True)
class Training(TrainingExperiment):
    """Final returns and learning curves of the modern presets."""

    name: ClassVar = "training"
    out: Path = Path("results/training")
    seeds: int = 10
    runs: Path = Path("runs/training")
    tasks: tuple[str, ...] = tuple(BY_NAME)
    """Tasks to run. Ant-v5-3M and Humanoid-v5-3M train for 3M steps."""

    def __post_init__(self):
        super().__post_init__()
        look_up(BY_NAME, self.tasks, "task")

    def run(self, say: Say, tasks: Sequence[TrainingTask] | None = None) -> list[Record]:
        """Train the missing runs, evaluate all policies, and write the results.

        Args:
            say: Function that prints a message.
            tasks: Tasks to run; by default those of the option `tasks`.
        """
        tasks = look_up(BY_NAME, self.tasks, "task") if tasks is None else tasks
        kept = KeptRuns(self.out, EPISODES)
        # Seed by seed, so that every task has some runs early.
        planned = [self.plans(task) for task in tasks]
        most = max(len(of_task) for of_task in planned)
        in_turn = [of_task[i] for i in range(most) for of_task in planned if i < len(of_task)]
        kept.train(in_turn, self.parallel, say)
        everything = {task.name: task for task in (*TASKS, *tasks)}
        return self._write([*everything.values()], kept)

    def _write(self, tasks: Sequence[TrainingTask], kept: KeptRuns) -> list[Record]:
        """Write the data files, the figure and the page from the kept runs."""
        before = read_json(self.out / "training.json")
        earlier = {row.get("task", row["env"]): row for row in before.get("tasks", [])}
        lines = read_json(self.out / "curves.json")
        results, by_task = [], {}
        for task in tasks:
            runs = kept.seeds_of(self.plans(task)[0].config)
            if runs:
                results.append(_summary(task, runs))
                by_task[task.name] = {**_curve(runs), "source": "logs"}
            elif task.name in earlier:
                results.append({"task": task.name, **earlier[task.name]})
                if task.name in lines.get("tasks", {}):
                    old = lines["tasks"][task.name]
                    by_task[task.name] = {"source": lines.get("source", "logs"), **old}
        record = {**made_by(command(self)), "episodes": EPISODES, "tasks": results}
        write_json(self.out / "training.json", record)
        rows = ({**row, "env": result["env"]} for result in results for row in result["runs"])
        write_csv(self.out / "training.csv", COLUMNS, rows, line_end="\r\n")
        write_json(self.out / "curves.json", {"tasks": by_task})
        self.write_pages()
        return results

    def write_pages(self) -> None:
        """Write the figure and the page from training.json and curves.json."""
        results = read_results(self.out / "training.json")
        lines = read_results(self.out / "curves.json")
        figure.plot(lines["tasks"], self.out / f"{page.FIGURE}.png")
        page.write(results, lines, self.out)

    def plans(self, task: TrainingTask) -> list[RunPlan]:
        """Return one run per seed of the task, or of the experiment."""
        config = dataclasses.replace(
            presets.resolve(task.env), total_steps=task.steps, max_iterations=None
        )
        seeds = min(self.seeds, task.seeds or self.seeds)
        return self.plan_seeds(self.runs / task.name, config, range(FIRST_SEED, FIRST_SEED + seeds))


def _curve(runs: Sequence[Record]) -> dict[str, list[float]]:
    """Return the mean return of training episodes over seeds, with its 95% band."""
    found = curves.band([curve_of(run) for run in runs])
    return {name: rounded(values) for name, values in found._asdict().items()}


def _summary(task: TrainingTask, runs: Sequence[Record]) -> dict[str, Any]:
    """Return the final returns of one task."""
    returns = [run["mean_return"] for run in runs]
    score, middle = mean_interval(returns), bootstrap(interquartile_mean, [np.array(returns)])
    names = [name for name in COLUMNS if name != "env"]
    return {
        "task": task.name,
        "env": task.env,
        "steps": task.steps,
        "goal": task.goal,
        "first_return": float(np.mean([run["first_return"] for run in runs])),
        "mean_return": score.value,
        "interval_95": score.interval,
        "interquartile_mean": middle.value,
        "interquartile_interval_95": middle.interval,
        "lowest_over_mean": min(returns) / score.value if score.value > 0 else None,
        "runs": [{name: run[name] for name in names} for run in runs],
    }
