"""Translates settings that earlier versions wrote, by their schema version.

| version | change |
|---|---|
| 1 | the first |
| 2 | `max-kl` solves Eq. 11. What version 1 called `max-kl` is `max-kl-step`. |
"""

import warnings
from collections.abc import Mapping
from typing import Any

from trellis.strict_json import shown

SCHEMA_VERSION = 2
"""Version of config.json; raised when a setting changes its meaning."""


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
    return values


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
