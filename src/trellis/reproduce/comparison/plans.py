"""The runs of Section 8.1's comparison, as data: task × method × seed, each a `trellis train`.

Every run has 200 iterations of the steps in Table 2. `scale` makes the iterations smaller (fewer
paths; fewer trunks and branching states with vine), never fewer. CEM and CMA have iterations of
their own making, so they get the simulator steps of single path instead.

Methods with a setting that the paper does not give are swept in factors of three, one run a value,
with a seed of its own so that the choice does not flatter the runs that are compared.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from trellis import presets
from trellis.config import SamplingConfig
from trellis.presets.paper import PAPER_ITERATIONS
from trellis.reproduce.sweep import RunPlan

RUNS = Path("runs/comparison")
SWEEP_SEED = 100
ITERATIONS = PAPER_ITERATIONS


@dataclass(frozen=True)
class Task:
    """A task of the paper, and what standing still is worth in it."""

    name: str
    env: str
    exponents: tuple[int, ...]
    """The multipliers 1/λ that are tried: 3 to these powers. The middle ones are about what TRPO's
    own steps come down to."""
    standing_reward: float | None = None
    """Reward of a time step without any forward velocity."""
    moves: bool = True
    """Whether it has a forward velocity at all."""


TASKS = {
    task.name: task
    for task in (
        Task("cartpole", "trellis/PaperCartPole-v0", tuple(range(-4, 2)), moves=False),
        Task("swimmer", "trellis/PaperSwimmer-v0", tuple(range(-3, 3))),
        Task("hopper", "trellis/PaperHopper-v0", tuple(range(-5, 0)), standing_reward=1.0),
        Task("walker", "trellis/PaperWalker-v0", tuple(range(-5, 0)), standing_reward=1.0),
    )
}


@dataclass(frozen=True)
class Method:
    """A line of the figure."""

    name: str
    label: str
    method: str
    """What `trellis train --method` calls it."""
    vine: str | None = None
    """Of the task's presets for vine, the ending: "vine", "vine-of-states" for the other reading of
    Table 2, "vine-bootstrap" for one of the two with a critic, or "vine-short" for short rollouts
    with one."""
    swept: str | None = None
    """The option that is swept."""
    search: bool = False
    """Derivative-free: it has a budget of steps and no given number of iterations."""
    optional: bool = False
    """Compared only where it is named."""


METHODS = {
    method.name: method
    for method in (
        Method("trpo", "TRPO, single path", "trpo"),
        Method("trpo-vine", "TRPO, vine", "trpo", vine="vine"),
        Method(
            "trpo-vine-of-states",
            "TRPO, vine of as many states",
            "trpo",
            vine="vine-of-states",
            optional=True,
        ),
        Method(
            "trpo-vine-bootstrap",
            "TRPO, vine with a critic",
            "trpo",
            vine="vine-bootstrap",
            optional=True,
        ),
        Method(
            "trpo-vine-short",
            "TRPO, vine of short rollouts with a critic",
            "trpo",
            vine="vine-short",
            optional=True,
        ),
        Method("natural-gradient", "natural gradient", "natural-gradient", swept="multiplier"),
        Method("empirical-fim", "empirical FIM", "empirical-fim"),
        Method("max-kl", "max KL", "max-kl"),
        Method("cem", "CEM", "cem", search=True),
        Method("cma", "CMA", "cma", search=True),
        Method("policy-gradient", "policy gradient", "policy-gradient"),
        Method("kl-penalty", "KL penalty", "kl-penalty", swept="penalty"),
    )
}


@dataclass(frozen=True)
class Scale:
    """How much smaller than the paper's an iteration is."""

    single_path: float = 1.0
    vine: float = 1.0

    def __post_init__(self):
        for value in (self.single_path, self.vine):
            if not 0 < value <= 1:
                raise ValueError(f"scale must be in (0, 1], got {value}")

    def of(self, method: Method) -> float:
        """The one that applies."""
        return self.vine if method.vine else self.single_path


def folder(task: Task, scale: float, runs: Path = RUNS) -> Path:
    """Where the runs of a task at a scale are."""
    return runs / (task.name if scale == 1 else f"{task.name}-scale-{scale:g}")


def swept_values(task: Task, method: Method) -> list[float]:
    """What is tried, smallest first; C of a penalty is about λ, so its powers are turned round."""
    powers = task.exponents if method.swept == "multiplier" else [-e for e in task.exponents]
    return [float(f"{3.0**power:.3g}") for power in sorted(powers)]


def sweep_plans(
    task: Task, method: Method, scale: Scale, *, runs: Path = RUNS, threads: int = 1
) -> list[RunPlan]:
    """One run of each value of a setting that is swept."""
    return [
        plan(task, method, SWEEP_SEED, scale, value, runs=runs, threads=threads)
        for value in swept_values(task, method)
    ]


def seed_plans(
    task: Task,
    method: Method,
    seeds: int,
    scale: Scale,
    value: float | None = None,
    *,
    runs: Path = RUNS,
    threads: int = 1,
) -> list[RunPlan]:
    """The runs that are compared; `value` is that of the setting that was swept."""
    return [
        plan(task, method, seed, scale, value, runs=runs, threads=threads) for seed in range(seeds)
    ]


def plan(
    task: Task,
    method: Method,
    seed: int,
    scale: Scale,
    value: float | None = None,
    *,
    runs: Path = RUNS,
    threads: int = 1,
) -> RunPlan:
    """One run."""
    name = method.name if value is None else f"{method.name}-{value:g}"
    of_method = scale.of(method)
    options = [*settings(task, method, of_method), "--threads", str(threads)]
    if value is not None:
        options += [f"--step.{method.swept}", f"{value:g}"]
    return RunPlan(folder(task, of_method, runs) / f"{name}-{seed}", task.env, seed, tuple(options))


def settings(task: Task, method: Method, scale: float = 1.0) -> list[str]:
    """The options of `trellis train` that make a method's runs on a task."""
    preset = "-".join(filter(None, (f"paper/{task.name}", method.vine)))
    config = presets.resolve(task.env, preset)
    options, sampling = scaled(config.sampling, scale)
    total = ITERATIONS * sampling.most_steps
    limit = "None" if method.search else str(ITERATIONS)
    return [
        *("--preset", preset, "--method", method.method, *options),
        *("--steps", str(total), "--max-iterations", limit),
        # Evaluations would take time and say nothing that the final one does not.
        *("--eval-every", "0", "--checkpoint-every", str(total // 20), "--keep-checkpoints", "1"),
    ]


def scaled(sampling: SamplingConfig, scale: float) -> tuple[list[str], SamplingConfig]:
    """The options that make an iteration smaller, and what it is then."""
    vine = sampling.vine
    if not sampling.is_vine:
        paths = max(1, round(scale * sampling.num_envs))
        smaller = dataclasses.replace(sampling, num_envs=paths)
        return ["--sampling.num-envs", str(paths)], smaller
    trunks, states = max(1, round(scale * vine.trunks)), max(1, round(scale * vine.states))
    options = ["--sampling.vine.trunks", str(trunks), "--sampling.vine.states", str(states)]
    vine = dataclasses.replace(vine, trunks=trunks, states=states)
    return options, dataclasses.replace(sampling, vine=vine)
