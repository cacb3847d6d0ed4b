"""Presets, which are named settings: those of the paper (`paper/…`) and newer ones (`modern/…`).

`resolve(env_id)` returns the settings of an environment's own preset, or of a default preset. A
preset is plain data; options and arguments override its values.
"""

import difflib

from trellis.config import TrainConfig
from trellis.presets.modern import MODERN, MODERN_ATARI
from trellis.presets.paper import PAPER, PAPER_ATARI
from trellis.presets.preset import Preset

ATARI: dict[str, Preset] = {**PAPER_ATARI, **MODERN_ATARI}
"""Presets for Atari games."""
PRESETS: dict[str, Preset] = {**MODERN, **PAPER, **ATARI}
"""All presets by name."""

DEFAULT = "modern/default"
"""Preset of environments that have no other."""
BY_ENVIRONMENT = {
    "Ant-v5": "modern/mujoco",
    "Humanoid-v5": "modern/mujoco",
    "HumanoidStandup-v5": "modern/mujoco",
    "Pusher-v5": "modern/mujoco",
    "Reacher-v5": "modern/mujoco",
    "Walker2d-v5": "modern/mujoco",
    "Swimmer-v5": "modern/swimmer",
    "HalfCheetah-v5": "modern/half-cheetah",
    "Hopper-v5": "modern/hopper",
    "InvertedPendulum-v5": "modern/double-pendulum",
    "InvertedDoublePendulum-v5": "modern/double-pendulum",
    "CartPole-v0": "modern/classic",
    "CartPole-v1": "modern/classic",
    "Acrobot-v1": "modern/classic",
    "trellis/SeeingReacher-v0": "modern/camera",
    "trellis/CartPoleNoVelocity-v0": "modern/memory",
    "trellis/PendulumNoVelocity-v0": "modern/memory-pendulum",
    "trellis/TMaze-v0": "modern/memory",
    "trellis/Repeat-v0": "modern/memory",
    "trellis/HopperNoVelocity-v0": "modern/memory-mujoco",
    "trellis/Walker2dNoVelocity-v0": "modern/memory-mujoco",
    "trellis/HalfCheetahNoVelocity-v0": "modern/memory-mujoco",
    "gymnax/CartPole-v1": "modern/jax",
    "gymnax/Acrobot-v1": "modern/jax",
    "gymnax/Pendulum-v1": "modern/pendulum",
    "MountainCarContinuous-v0": "modern/mountain-car",
    "gymnax/MountainCarContinuous-v0": "modern/mountain-car",
    "phys2d/CartPole-v0": "modern/jax",
    "phys2d/CartPole-v1": "modern/jax",
    "phys2d/Pendulum-v0": "modern/pendulum",
    "brax/inverted_pendulum": "modern/brax-pendulum",
    "trellis/PaperSwimmer-v0": "paper/swimmer",
    "trellis/PaperHopper-v0": "paper/hopper",
    "trellis/PaperWalker-v0": "paper/walker",
    "trellis/PaperCartPole-v0": "paper/cartpole",
}
"""Preset of each environment that has its own."""
BY_PART = {
    "ALE/": "modern/atari",
    "pgx/minatar-": "modern/minatar",
    "-MinAtar": "modern/minatar",
}
"""Preset of environments by the beginning or the end of their id."""


def resolve(env_id: str, name: str | None = None, method: str | None = None) -> TrainConfig:
    """Return the settings of a preset for an environment.

    Args:
        env_id: Gymnasium id. A module in front of it (`ale_py:ALE/Pong-v5`) does not matter.
        name: Name of the preset. Default: the environment's own, else modern/atari for Atari games,
            modern/minatar for MinAtar games and modern/default for everything else.
        method: Method that will replace the preset's. Step settings that it ignores are left out.

    Raises:
        ValueError: There is no preset of this name.
    """
    bare = env_id.rpartition(":")[2]
    by_part = (preset for part, preset in BY_PART.items() if _has(bare, part))
    name = name or BY_ENVIRONMENT.get(bare) or next(by_part, DEFAULT)
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no preset {name!r}; {hint}`trellis presets` lists them")
    settings = {key: value for key, value in vars(PRESETS[name]).items() if key != "about"}
    if method is not None:
        settings["step"] = settings["step"].without_ignored(method)
    return TrainConfig(env=env_id, preset=name, **settings)


def _has(env_id: str, part: str) -> bool:
    return env_id.endswith(part) if part.startswith("-") else env_id.startswith(part)
