"""The commands that made a run, from its settings."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trellis import presets
from trellis.config import TrainConfig
from trellis.config.file import flatten
from trellis.runs.folder import as_json

NO_OPTIONS = ("schema_version", "env", "preset")
"""Settings that are not options of their own in a command."""


def train_command(config: TrainConfig, folder: Path | None = None) -> list[str]:
    """Return the arguments of the `trellis train` command that leads to these settings.

    Args:
        config: Settings of a run.
        folder: Run folder. Default: leave out `--out`.
    """
    base = TrainConfig(env=config.env)
    args = ["trellis", "train", config.env]
    try:
        base = presets.resolve(config.env, config.preset)
        is_default = config.preset == presets.resolve(config.env).preset
        args += [] if is_default or not config.preset else ["--preset", config.preset]
    except ValueError:  # A preset of another version.
        base = presets.resolve(config.env)
    before = _settings(base)
    for name, value in _settings(config).items():
        if name == "seed" or before.get(name) != value:
            args += _option(name, value)
    return [*args, "--out", str(folder)] if folder else args


def commands_of(config: TrainConfig, folder: Path) -> Iterator[str]:
    """Yield the commands that train, evaluate and record a run."""
    yield shlex.join(train_command(config, folder))
    yield shlex.join(["trellis", "eval", str(folder)])
    yield shlex.join(["trellis", "record", str(folder)])


def _settings(config: TrainConfig) -> dict[str, Any]:
    values = as_json(config)
    options = values.pop("env_options")
    flat = flatten({name: value for name, value in values.items() if name not in NO_OPTIONS})
    return {**flat, "env_options": options}


def _option(name: str, value: Any) -> list[str]:
    """Return an option and its values."""
    *groups, last = name.replace("_", "-").split(".")
    flag = "--" + ".".join([*groups, last])
    if isinstance(value, bool):
        return [flag if value else "--" + ".".join([*groups, f"no-{last}"])]
    if isinstance(value, Mapping):
        return [flag, *(f"{key}={json.dumps(each)}" for key, each in value.items())]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, str(value)]
