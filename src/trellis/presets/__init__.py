"""Named settings: the paper's (`paper/…`) and those that work best today (`modern/…`).

`resolve(env_id)` returns the settings for an environment: its own preset, or a good default. A
preset is plain data; any of its values can be overridden afterwards.
"""

import dataclasses
import difflib

from trellis.config import TrainConfig
from trellis.presets.modern import MODERN, MODERN_ATARI
from trellis.presets.paper import PAPER, PAPER_ATARI
from trellis.presets.preset import Preset

ATARI: dict[str, Preset] = {**PAPER_ATARI, **MODERN_ATARI}
PRESETS: dict[str, Preset] = {**MODERN, **PAPER, **ATARI}

BY_ENVIRONMENT = {
    "Swimmer-v5": "modern/swimmer",
    **dict.fromkeys(
        (
            "Ant-v5",
            "Humanoid-v5",
            "InvertedPendulum-v5",
            "Pusher-v5",
            "Reacher-v5",
            "Walker2d-v5",
        ),
        "modern/mujoco",
    ),
    "HalfCheetah-v5": "modern/half-cheetah",
    "Hopper-v5": "modern/hopper",
    "InvertedDoublePendulum-v5": "modern/double-pendulum",
    **dict.fromkeys(("CartPole-v0", "CartPole-v1", "Acrobot-v1"), "modern/classic"),
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
    preset = PRESETS[name]
    parts = {
        part.name: getattr(preset, part.name)
        for part in dataclasses.fields(preset)
        if part.name != "about"
    }
    return TrainConfig(env=env_id, preset=name, **parts)
