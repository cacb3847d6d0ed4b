"""Named settings: the paper's (`paper/…`) and those that work best today (`modern/…`).

`resolve(env_id)` returns the settings for an environment: its own preset, or a good default. A
preset is plain data; any of its values can be overridden afterwards.
"""

import difflib

from trellis.config import TrainConfig
from trellis.presets.modern import MODERN, MODERN_ATARI
from trellis.presets.paper import PAPER, PAPER_ATARI
from trellis.presets.preset import Preset

ATARI: dict[str, Preset] = {**PAPER_ATARI, **MODERN_ATARI}
PRESETS: dict[str, Preset] = {**MODERN, **PAPER, **ATARI}

BY_ENVIRONMENT = {
    "Ant-v5": "modern/mujoco",
    "Humanoid-v5": "modern/mujoco",
    "InvertedPendulum-v5": "modern/mujoco",
    "Pusher-v5": "modern/mujoco",
    "Reacher-v5": "modern/mujoco",
    "Walker2d-v5": "modern/mujoco",
    "Swimmer-v5": "modern/swimmer",
    "HalfCheetah-v5": "modern/half-cheetah",
    "Hopper-v5": "modern/hopper",
    "InvertedDoublePendulum-v5": "modern/double-pendulum",
    "CartPole-v0": "modern/classic",
    "CartPole-v1": "modern/classic",
    "Acrobot-v1": "modern/classic",
    "trellis/PaperSwimmer-v0": "paper/swimmer",
    "trellis/PaperHopper-v0": "paper/hopper",
    "trellis/PaperWalker-v0": "paper/walker",
    "trellis/PaperCartPole-v0": "paper/cartpole",
}


def resolve(env_id: str, name: str | None = None) -> TrainConfig:
    """The settings for an environment: those of preset `name`, or else its own, or the default."""
    default = "modern/atari" if env_id.startswith("ALE/") else "modern/default"
    name = name or BY_ENVIRONMENT.get(env_id, default)
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no preset {name!r}{hint} There are: {', '.join(PRESETS)}")
    settings = {key: value for key, value in vars(PRESETS[name]).items() if key != "about"}
    return TrainConfig(env=env_id, preset=name, **settings)
