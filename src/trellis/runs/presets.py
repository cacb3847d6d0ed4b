"""Named settings: the paper's (`paper/…`, Table 2) and what works best today (`modern/…`).

`resolve(env_id)` gives an environment its own preset, or a good default. A preset is plain data;
any of its values can be overridden afterwards.
"""

import dataclasses
import difflib
from dataclasses import dataclass, field

from trellis.optimization.methods import StepConfig
from trellis.runs.config import EstimationConfig, PolicyConfig, SamplingConfig, TrainConfig

# Table 2 of the paper.
PAPER_MAX_KL = 0.01
PAPER_GAMMA = 0.99
PAPER_ITERATIONS = 200
PAPER_PATH_LENGTH = 1000
PAPER_STEPS_PER_ITERATION = {"swimmer": 50_000, "hopper": 1_000_000, "walker": 1_000_000}
CARTPOLE_STEPS_PER_ITERATION = 10_000
"""Table 2 has no column for the cart-pole; this is ours."""

PAPER_DAMPING = 1e-3
"""The paper names none; enough to keep the solve from following noise."""
PAPER_ESTIMATION = EstimationConfig(
    gamma=PAPER_GAMMA,
    critic="none",
    advantages="center",
    normalize_observations=False,
    normalize_rewards=False,
)


@dataclass(frozen=True)
class Preset:
    """What a name stands for."""

    about: str
    total_steps: int = 1_000_000
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    step: StepConfig = field(default_factory=StepConfig)


def _paper(task: str, steps: int, policy: PolicyConfig) -> Preset:
    paths = steps // PAPER_PATH_LENGTH
    return Preset(
        about=f"the paper's {task}: {paths} paths of {PAPER_PATH_LENGTH} steps, no critic",
        total_steps=PAPER_ITERATIONS * steps,
        policy=policy,
        sampling=SamplingConfig(paths, PAPER_PATH_LENGTH, whole_paths=True),
        estimation=PAPER_ESTIMATION,
        step=StepConfig(max_kl=PAPER_MAX_KL, damping=PAPER_DAMPING),
    )


PRESETS: dict[str, Preset] = {
    "modern/default": Preset("critic, GAE and normalization, for anything without a preset"),
    "modern/mujoco": Preset("critic, GAE and normalization, for MuJoCo's locomotion tasks"),
    "modern/swimmer": Preset(
        "a long horizon: the swimmer's reward comes late",
        sampling=SamplingConfig(num_envs=16, steps_per_env=1000),
        estimation=EstimationConfig(gamma=0.9999),
        step=StepConfig(max_kl=0.02),
    ),
    "modern/classic": Preset(
        "short episodes and small networks, for classic control",
        total_steps=100_000,
        sampling=SamplingConfig(num_envs=16, steps_per_env=64),
        step=StepConfig(max_kl=0.02),
    ),
    "paper/swimmer": _paper(
        "swimmer",
        PAPER_STEPS_PER_ITERATION["swimmer"],
        PolicyConfig(hidden=(30,), hidden_biases=False),
    ),
    "paper/hopper": _paper(
        "hopper", PAPER_STEPS_PER_ITERATION["hopper"], PolicyConfig(hidden=(50, 50))
    ),
    "paper/walker": _paper(
        "walker", PAPER_STEPS_PER_ITERATION["walker"], PolicyConfig(hidden=(50, 50))
    ),
    "paper/cartpole": _paper("cart-pole", CARTPOLE_STEPS_PER_ITERATION, PolicyConfig(hidden=())),
}

BY_ENVIRONMENT = {
    "Swimmer-v5": "modern/swimmer",
    **dict.fromkeys(
        (
            "Ant-v5",
            "HalfCheetah-v5",
            "Hopper-v5",
            "Humanoid-v5",
            "InvertedDoublePendulum-v5",
            "InvertedPendulum-v5",
            "Reacher-v5",
            "Walker2d-v5",
        ),
        "modern/mujoco",
    ),
    **dict.fromkeys(("CartPole-v0", "CartPole-v1", "Acrobot-v1"), "modern/classic"),
    "trellis/PaperSwimmer-v0": "paper/swimmer",
    "trellis/PaperHopper-v0": "paper/hopper",
    "trellis/PaperWalker-v0": "paper/walker",
    "trellis/PaperCartPole-v0": "paper/cartpole",
}


def names() -> list[str]:
    """Of all presets."""
    return list(PRESETS)


def resolve(env_id: str, name: str | None = None) -> TrainConfig:
    """The settings for an environment: those of preset `name`, or else its own, or the default."""
    name = name or BY_ENVIRONMENT.get(env_id, "modern/default")
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no preset {name!r}{hint} There are: {', '.join(PRESETS)}")
    preset = PRESETS[name]
    parts = {
        part.name: getattr(preset, part.name)
        for part in dataclasses.fields(preset)
        if part.name != "about"
    }
    return TrainConfig(env=env_id, preset=name, **parts)
