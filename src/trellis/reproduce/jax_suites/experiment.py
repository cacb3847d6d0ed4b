"""Returns of the presets on environments in JAX: `trellis reproduce jax`.

Classic control and one physics task have a goal, which counts as solved. The MinAtar games stand
beside published scores of PPO. All seeds of a task train at once. Finished runs are kept as a line
in `results/jax/runs`, so the experiment can be spread over days; `--report-only` writes
the page from what is there.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from trellis import presets
from trellis.reproduce.experiment import TrainingExperiment, look_up, maker
from trellis.reproduce.jax_suites import page
from trellis.reproduce.kept_runs import KeptRuns
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say
from trellis.runs.seeds import is_group, resume_seeds, train_seeds
from trellis.training.seeds import SeedsTrainer

EPISODES = 100
"""Number of episodes that every final policy plays."""


class Task(NamedTuple):
    """An environment, and what its return is compared with."""

    env: str
    """Id of the environment."""
    steps: int
    """Simulator steps of a run."""
    goal: float | None = None
    """Mean return that counts as solved; None for games."""
    published: float | None = None
    """Published return of PPO; None if none is known."""


TASKS = {
    "cartpole": Task("gymnax/CartPole-v1", 200_000, goal=500.0),
    "acrobot": Task("gymnax/Acrobot-v1", 200_000, goal=-100.0),
    "pendulum": Task("gymnax/Pendulum-v1", 1_000_000, goal=-200.0),
    "mountain-car": Task("gymnax/MountainCarContinuous-v0", 500_000, goal=90.0),
    "inverted-pendulum": Task("brax/inverted_pendulum", 1_500_000, goal=1000.0),
    "asterix": Task("gymnax/Asterix-MinAtar", 5_000_000, published=15.0),
    "breakout": Task("gymnax/Breakout-MinAtar", 5_000_000, published=28.0),
    "freeway": Task("gymnax/Freeway-MinAtar", 5_000_000, published=58.0),
    "seaquest": Task("pgx/minatar-seaquest", 5_000_000),
    "space-invaders": Task("gymnax/SpaceInvaders-MinAtar", 5_000_000, published=131.0),
}
"""Tasks by name."""


@dataclass(frozen=True)
class JaxSuites(TrainingExperiment):
    """Returns on environments in JAX: classic control, MinAtar and physics."""

    name: ClassVar = "jax"
    out: Path = Path("results/jax")
    seeds: int = 5
    runs: Path = Path("runs/jax")
    parallel: int = 1
    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks to run."""

    def __post_init__(self):
        super().__post_init__()
        look_up(TASKS, self.tasks, "task")

    def run(self, say: Say) -> None:
        """Train the missing runs, keep each of them, and write the page."""
        kept = KeptRuns(self.out, EPISODES)
        for task in self.tasks:
            plans = [self.plan(task, seed) for seed in range(self.seeds)]
            missing = kept.missing(plans)
            say(f"{task}: {len(plans) - len(missing)} of {len(plans)} runs are kept")
            if missing:
                train_together(self.runs / task, missing)
            for plan in missing:
                record = kept.keep(plan)
                say(f"{task}, seed {plan.config.seed}: {record['mean_return']:,.1f}")
            self.write_pages()

    def plan(self, task: str, seed: int) -> RunPlan:
        """Return one run, with the preset of its environment."""
        env, steps, *_ = TASKS[task]
        config = dataclasses.replace(
            presets.resolve(env), total_steps=steps, seed=seed, threads=1, eval_every=0
        )
        return RunPlan(self.runs / task / f"seed-{seed}", config)

    def write_pages(self) -> None:
        """Write jax.json, the page and the figure from the kept runs."""
        kept = KeptRuns(self.out, EPISODES)
        found = {name: kept.seeds_of(self.plan(name, 0).config) for name in TASKS}
        rows = [
            page.measure(name, TASKS[name]._asdict(), runs) for name, runs in found.items() if runs
        ]
        page.write(self.out, rows, found, maker(self, self.out / "jax.json"))


def train_together(folder: Path, plans: Sequence[RunPlan]) -> None:
    """Train several seeds at once, or continue them if they were interrupted.

    Args:
        folder: Folder for all of them.
        plans: One run per seed, which differ in their seeds alone.
    """
    if is_group(folder):
        resume_seeds(folder, tensorboard=False)
        return
    seeds = [plan.config.seed for plan in plans]
    with contextlib.closing(SeedsTrainer(plans[0].config, seeds)) as trainer:
        train_seeds(trainer, folder, tensorboard=False)
