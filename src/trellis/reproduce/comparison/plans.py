"""The runs of Section 8.1's comparison as data: task × method × seed.

Every run has 200 iterations with the steps of Table 2. `scale` makes the iterations smaller (fewer
paths; with vine, fewer trunks and branch states), and their number stays. CEM and CMA choose the
size of their iterations, so they get the simulator steps of single path instead.

Some methods have a setting that the paper does not give. It is swept in factors of three, one run
per value. The sweep has its own seed, so that the choice does not favor the compared runs.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from trellis import presets
from trellis.analysis import figures
from trellis.config import SamplingConfig, TrainConfig
from trellis.presets.paper import PAPER_ITERATIONS

SWEEP_SEED = 100
ITERATIONS = PAPER_ITERATIONS


@dataclass(frozen=True)
class ComparedTask:
    """A task of the paper."""

    name: str
    title: str
    """Name on pages and in figures."""
    env: str
    exponents: tuple[int, ...]
    """Powers of 3 that the sweep tries as the multiplier 1/λ; TRPO's steps are near the middle."""
    standing_reward: float | None = None
    """Reward of a time step without forward velocity; None if it is not of interest."""
    moves: bool = True
    """Whether the task has a forward velocity."""


TASKS = {
    task.name: task
    for task in (
        ComparedTask(
            *("cartpole", "cart-pole", "trellis/PaperCartPole-v0", tuple(range(-4, 2))),
            moves=False,
        ),
        ComparedTask("swimmer", "swimmer", "trellis/PaperSwimmer-v0", tuple(range(-3, 3))),
        ComparedTask(
            *("hopper", "hopper", "trellis/PaperHopper-v0", tuple(range(-5, 0))),
            standing_reward=1.0,
        ),
        ComparedTask(
            *("walker", "walker", "trellis/PaperWalker-v0", tuple(range(-5, 0))),
            standing_reward=1.0,
        ),
    )
}


@dataclass(frozen=True)
class Method:
    """A method of the comparison."""

    name: str
    label: str
    """Name on pages and in figures."""
    color: str
    about: str
    """Description of at most 15 words."""
    vine: str | None = None
    """Ending of the name of the task's vine preset; None if the method does not use vine."""
    swept: str | None = None
    """Step setting that the sweep varies, if any."""
    search: bool = False
    """Whether the method is derivative-free. Its budget is steps, not iterations."""
    optional: bool = False
    """Whether the method runs only if the user names it."""

    @property
    def method(self) -> str:
        """Name of the update rule or search method."""
        return "trpo" if self.vine else self.name


BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = figures.COLORS
_VINES = {
    "vine": ("vine", VERMILION, "TRPO with vine sampling, as in the paper."),
    "vine-of-states": (
        *("vine with 4× states", PURPLE),
        "Vine with as many branch states as Table 2 has Q-values.",
    ),
    "vine-bootstrap": (
        *("vine with critic", ORANGE),
        "Vine with a critic at the end of rollouts (not in the paper).",
    ),
    "vine-short": (
        *("short vine with critic", SKY),
        "Vine with rollouts of 10 steps and a critic (not in the paper).",
    ),
}
METHODS = {
    method.name: method
    for method in (
        Method("trpo", "TRPO, single path", BLUE, "TRPO with single-path sampling."),
        *(
            Method(
                *(f"trpo-{vine}", f"TRPO, {label}", color, about),
                vine=vine,
                optional=vine != "vine",
            )
            for vine, (label, color, about) in _VINES.items()
        ),
        Method(
            *("natural-gradient", "natural gradient", GREEN),
            "Natural gradient with a fixed multiplier 1/λ, which is swept.",
            swept="multiplier",
        ),
        Method(
            *("empirical-fim", "empirical FIM", SKY),
            "TRPO with the Fisher matrix from the covariance of gradients.",
        ),
        Method(
            *("max-kl", "max KL", PURPLE),
            "Eq. 11 solved: a bound on the KL of every state (cart-pole only).",
            optional=True,
        ),
        Method(
            *("max-kl-step", "max KL step", PURPLE),
            "TRPO's direction, shortened until no state's KL exceeds δ.",
        ),
        Method("cem", "CEM", BLACK, "Cross-entropy method (derivative-free).", search=True),
        Method(
            *("cma", "CMA", ORANGE),
            "Covariance matrix adaptation (derivative-free).",
            search=True,
        ),
        Method(
            *("policy-gradient", "policy gradient", ORANGE),
            "Gradient steps of fixed length (not in the paper's comparison).",
        ),
        Method(
            *("kl-penalty", "KL penalty", BLACK),
            "A KL penalty C, which is swept, instead of the constraint.",
            swept="penalty",
        ),
    )
}
STANDARD = tuple(method.name for method in METHODS.values() if not method.optional)
"""Methods that run by default."""


def folder(task: ComparedTask, scale: float) -> str:
    """Return the name of the folder for the runs of a task at a scale."""
    return task.name if scale == 1 else f"{task.name}-scale-{scale:g}"


def swept_values(task: ComparedTask, method: Method) -> list[float]:
    """Return the values to try, smallest first; a penalty C is about λ."""
    powers = task.exponents if method.swept == "multiplier" else [-e for e in task.exponents]
    return [float(f"{3.0**power:.3g}") for power in sorted(powers)]


def settings(task: ComparedTask, method: Method, scale: float = 1.0, **step: Any) -> TrainConfig:
    """Return the settings of a method's runs on a task, with `step` settings changed."""
    preset = "-".join(filter(None, (f"paper/{task.name}", method.vine)))
    config = presets.resolve(task.env, preset)
    sampling = scaled(config.sampling, scale)
    total = ITERATIONS * sampling.most_steps
    search = config.search
    if method.name == "cem":
        # With noise for 50 generations, the standard deviation was 0 after about 200 of 900 to
        # 1,900 generations on the walker.
        search = dataclasses.replace(search, noise_generations=0)
    return dataclasses.replace(
        config,
        sampling=sampling,
        step=dataclasses.replace(config.step, method=method.method, **step),
        search=search,
        total_steps=total,
        max_iterations=None if method.search else ITERATIONS,
        eval_every=0,  # The final policy is evaluated afterwards.
        checkpoint_every=total // 20,
        keep_checkpoints=1,
    )


def scaled(sampling: SamplingConfig, scale: float) -> SamplingConfig:
    """Return the sampling settings of a smaller iteration."""
    if not sampling.is_vine:
        return dataclasses.replace(sampling, num_envs=max(1, round(scale * sampling.num_envs)))
    vine = sampling.vine
    trunks, states = max(1, round(scale * vine.trunks)), max(1, round(scale * vine.states))
    return dataclasses.replace(
        sampling, vine=dataclasses.replace(vine, trunks=trunks, states=states)
    )
