"""What memory is worth where observations hide a part of the state: `trellis reproduce memory`.

Every task is trained with a GRU, with an LSTM and without memory, and, if there is one, the same
task with full observations. Finished runs are kept as a line in `results/memory/runs`, so the
experiment can be spread over days; `--report-only` writes the page from what is there.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from trellis import presets
from trellis.config import PolicyConfig
from trellis.reproduce.experiment import TrainingExperiment, look_up, maker
from trellis.reproduce.kept_runs import KeptRuns
from trellis.reproduce.memory import page
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say

EPISODES = 100
"""Number of episodes that every final policy plays."""
FULL = "full"
"""Name of the policy that sees everything and needs no memory."""
POLICIES = ("gru", "lstm", "none", FULL)
"""Policies that are compared."""


class Task(NamedTuple):
    """A task that hides a part of its state."""

    env: str
    """Id of the environment."""
    full: str | None
    """Id of the same task with full observations."""
    steps: int
    """Simulator steps of a run."""


TASKS = {
    "repeat": Task("trellis/Repeat-v0", None, 200_000),
    "t-maze": Task("trellis/TMaze-v0", None, 200_000),
    "cartpole": Task("trellis/CartPoleNoVelocity-v0", "CartPole-v1", 200_000),
    "pendulum": Task("trellis/PendulumNoVelocity-v0", "Pendulum-v1", 500_000),
    "hopper": Task("trellis/HopperNoVelocity-v0", "Hopper-v5", 2_000_000),
    "walker2d": Task("trellis/Walker2dNoVelocity-v0", "Walker2d-v5", 2_000_000),
    "half-cheetah": Task("trellis/HalfCheetahNoVelocity-v0", "HalfCheetah-v5", 2_000_000),
}
"""Tasks by name."""


@dataclass(frozen=True)
class Memory(TrainingExperiment):
    """Policies with memory against policies without, on tasks that hide a part of their state."""

    name: ClassVar = "memory"
    out: Path = Path("results/memory")
    seeds: int = 5
    runs: Path = Path("runs/memory")
    parallel: int = 1
    tasks: tuple[str, ...] = ("repeat", "t-maze", "cartpole", "pendulum", "hopper", "walker2d")
    """Tasks to run."""
    first_seed: int = 0
    """First of the seeds, so that several machines or processes can share the experiment."""
    policies: tuple[str, ...] = ("gru", "none", FULL)
    """Policies to run: gru, lstm, none (feed-forward) and full (with full observations)."""

    def __post_init__(self):
        super().__post_init__()
        look_up(TASKS, self.tasks, "task")
        look_up(dict.fromkeys(POLICIES), self.policies, "policy")

    @property
    def seed_range(self) -> range:
        """Seeds of the runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def run(self, say: Say) -> None:
        """Train the missing runs, keep each of them, and write the page."""
        plans = [
            self.plan(task, policy, seed)
            for task in self.tasks
            for seed in self.seed_range
            for policy in self.policies
            if policy != FULL or TASKS[task].full
        ]
        kept = KeptRuns(self.out, EPISODES)
        for plan in kept.missing(plans):  # One by one, so that the page is always up to date.
            kept.train([plan], 1, say)
            self.write_pages()
        self.write_pages()

    def plan(self, task: str, policy: str, seed: int) -> RunPlan:
        """Return one run, with one thread and the preset of its environment."""
        env, full, steps = TASKS[task]
        config = presets.resolve(full if policy == FULL and full else env)
        if policy != FULL:
            hidden = (64, 64) if policy == "none" else config.policy.hidden
            span = PolicyConfig().memory_span if policy == "none" else config.policy.memory_span
            network = dataclasses.replace(
                config.policy, hidden=hidden, memory=policy, memory_span=span
            )
            config = dataclasses.replace(config, policy=network)
        config = dataclasses.replace(
            config, total_steps=steps, max_iterations=None, seed=seed, threads=1, eval_every=0
        )
        return RunPlan(self.runs / f"{task}-{policy}-{seed}", config)

    def write_pages(self) -> None:
        """Write memory.json and the page from the kept runs."""
        kept = KeptRuns(self.out, EPISODES)
        found = {
            task: {
                policy: kept.seeds_of(self.plan(task, policy, 0).config)
                for policy in POLICIES
                if policy != FULL or TASKS[task].full
            }
            for task in TASKS
        }
        page.write(self.out, found, maker(self, self.out / "memory.json"))
