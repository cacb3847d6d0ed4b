"""The runs of Section 8.1's comparison as data: task × method × seed.

Every run has 200 iterations of the steps in Table 2. `scale` makes the iterations smaller (fewer
paths; fewer trunks and branching states with vine), never fewer. CEM and CMA choose the size of
their iterations, so they get the simulator steps of single path instead.

Methods with a setting that the paper does not give are swept in factors of three, one run per
value. The sweep has its own seed, so that the choice does not favour the runs that are compared.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from trellis import presets
from trellis.config import SamplingConfig, TrainConfig
from trellis.presets.paper import PAPER_ITERATIONS

SWEEP_SEED = 100
ITERATIONS = PAPER_ITERATIONS


@dataclass(frozen=True)
class ComparedTask:
    """A task of the paper, and what standing still is worth in it."""

    name: str
    env: str
    exponents: tuple[int, ...]
    """Powers of 3 that are tried as the multiplier 1/λ; TRPO's own steps are near the middle."""
    standing_reward: float | None = None
    """Reward of a time step without forward velocity."""
    moves: bool = True
    """Whether the task has a forward velocity."""


TASKS = {
    task.name: task
    for task in (
        ComparedTask("cartpole", "trellis/PaperCartPole-v0", tuple(range(-4, 2)), moves=False),
        ComparedTask("swimmer", "trellis/PaperSwimmer-v0", tuple(range(-3, 3))),
        ComparedTask("hopper", "trellis/PaperHopper-v0", tuple(range(-5, 0)), standing_reward=1.0),
        ComparedTask("walker", "trellis/PaperWalker-v0", tuple(range(-5, 0)), standing_reward=1.0),
    )
}


@dataclass(frozen=True)
class Method:
    """A line of the figure."""

    name: str
    label: str
    color: str
    vine: str | None = None
    """Ending of the task's preset for vine, if the method samples by vine."""
    swept: str | None = None
    """Setting of the step that is swept."""
    search: bool = False
    """Whether the method is derivative-free: it has a budget of steps, not of iterations."""
    optional: bool = False
    """Whether the method is compared only if it is named."""

    @property
    def method(self) -> str:
        """Update rule or search method."""
        return "trpo" if self.vine else self.name


_VINES = {
    "vine": ("vine", "#D55E00"),
    "vine-of-states": ("vine of as many states", "#7B241C"),
    "vine-bootstrap": ("vine with a critic", "#F5B7B1"),
    "vine-short": ("vine of short rollouts with a critic", "#C0392B"),
}
METHODS = {
    method.name: method
    for method in (
        Method("trpo", "TRPO, single path", "#0072B2"),
        *(
            Method(f"trpo-{vine}", f"TRPO, {label}", color, vine=vine, optional=vine != "vine")
            for vine, (label, color) in _VINES.items()
        ),
        Method("natural-gradient", "natural gradient", "#009E73", swept="multiplier"),
        Method("empirical-fim", "empirical FIM", "#56B4E9"),
        Method("max-kl", "max KL", "#CC79A7"),
        Method("cem", "CEM", "#E69F00", search=True),
        Method("cma", "CMA", "#8B5A2B", search=True),
        Method("policy-gradient", "policy gradient", "#777777"),
        Method("kl-penalty", "KL penalty", "#000000", swept="penalty"),
    )
}
STANDARD = tuple(method.name for method in METHODS.values() if not method.optional)
"""Methods that are compared by default."""


def folder(task: ComparedTask, scale: float) -> str:
    """Return the folder of the runs of a task at a scale."""
    return task.name if scale == 1 else f"{task.name}-scale-{scale:g}"


def swept_values(task: ComparedTask, method: Method) -> list[float]:
    """Return the values to try, smallest first; C of a penalty is about λ, the inverse."""
    powers = task.exponents if method.swept == "multiplier" else [-e for e in task.exponents]
    return [float(f"{3.0**power:.3g}") for power in sorted(powers)]


def settings(task: ComparedTask, method: Method, scale: float = 1.0, **step: Any) -> TrainConfig:
    """Return the settings of a method's runs on a task; `step` changes those of the step."""
    preset = "-".join(filter(None, (f"paper/{task.name}", method.vine)))
    config = presets.resolve(task.env, preset)
    sampling = scaled(config.sampling, scale)
    total = ITERATIONS * sampling.most_steps
    return dataclasses.replace(
        config,
        sampling=sampling,
        step=dataclasses.replace(config.step, method=method.method, **step),
        total_steps=total,
        max_iterations=None if method.search else ITERATIONS,
        eval_every=0,  # The final policy is evaluated afterwards.
        checkpoint_every=total // 20,
        keep_checkpoints=1,
    )


def scaled(sampling: SamplingConfig, scale: float) -> SamplingConfig:
    """Return the sampling of a smaller iteration."""
    if not sampling.is_vine:
        return dataclasses.replace(sampling, num_envs=max(1, round(scale * sampling.num_envs)))
    vine = sampling.vine
    trunks, states = max(1, round(scale * vine.trunks)), max(1, round(scale * vine.states))
    return dataclasses.replace(
        sampling, vine=dataclasses.replace(vine, trunks=trunks, states=states)
    )
