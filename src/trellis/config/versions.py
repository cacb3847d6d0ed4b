"""Translates settings that earlier versions wrote, by their schema version.

| version | change |
|---|---|
| 1 | the first |
| 2 | `max-kl` solves Eq. 11. What version 1 called `max-kl` is `max-kl-step`. |
| 3 | `policy.pictures`: pictures of every shape get convolutions. Before, it was `frames-first`. |
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any

from trellis.strict_json import shown

SCHEMA_VERSION = 3
"""Version of config.json; raised when a setting changes its meaning."""

WITHOUT_COLOURS = re.compile(
    r"(\w+:)?(ALE/\w+|trellis/\w+|CartPole|Acrobot|MountainCar(Continuous)?|Pendulum|Taxi"
    r"|FrozenLake|FrozenLake8x8|CliffWalking|Blackjack|LunarLander(Continuous)?|BipedalWalker"
    r"|Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|InvertedPendulum|InvertedDoublePendulum"
    r"|Pusher|Reacher|Swimmer|Walker2d)-v\d"
)
"""Environments without pictures, or with stacks of frames alone: version 3 changes nothing."""


class RenamedSettingWarning(UserWarning):
    """Settings of an earlier version have another name now; the run is the same."""


def to_current(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of any known version as those of the current one, without the version.

    Raises:
        ValueError: The version is unknown.
    """
    values = dict(values)
    version = values.pop("schema_version", None)
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise ValueError(
            f"schema_version must be 1 to {SCHEMA_VERSION}, got {shown(version)}; use the version"
            " of trellis-rl that wrote this file"
        )
    step = values.get("step")
    if version < 2 and isinstance(step, Mapping) and step.get("method") == "max-kl":
        _notice_renamed()
        values["step"] = {**step, "method": "max-kl-step"}
    policy = values.get("policy", {})
    if version < 3 and isinstance(policy, Mapping) and _may_have_colours(values):
        values["policy"] = {"pictures": "frames-first", **policy}
    return values


def _may_have_colours(values: Mapping[str, Any]) -> bool:
    """Return whether an environment may have pictures that version 2 flattened."""
    options = values.get("env_options")
    if isinstance(options, Mapping) and "obs_type" in options:
        return True
    return not WITHOUT_COLOURS.fullmatch(str(values.get("env")))


def _notice_renamed() -> None:
    """Warn once per process that a method has another name."""
    if not _NOTICED:
        _NOTICED.append(True)
        warnings.warn(
            "These settings are of an earlier version, whose method max-kl is now called"
            " max-kl-step. They are read as max-kl-step, which does the same; max-kl now solves"
            " Eq. 11.",
            RenamedSettingWarning,
            stacklevel=4,
        )


_NOTICED: list[bool] = []
