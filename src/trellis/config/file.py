"""`config.json`: the settings of a run with their checksum, and how untrusted ones are read.

The file is read as bounded, strict JSON, its SHA-256 is verified, and settings that decide how much
memory a run takes have an upper bound. Reading runs no code and imports no environment.
"""

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trellis import strict_json
from trellis.config import CONFIG_FILE, TrainConfig, from_json, to_json
from trellis.safe_files import read_file
from trellis.strict_json import INT64, shown

LOG_FILE = "metrics.jsonl"
"""File of a run folder that holds its log. A saved agent has none."""
CONFIG_BYTES = 1 << 20
"""Largest config.json that is read."""
CHECKSUM = "sha256"
"""Entry of config.json that holds the SHA-256 of all others."""
MAY_CHANGE = frozenset(
    [
        "total_steps",
        "max_iterations",
        "eval_every",
        "eval_episodes",
        "eval_drawn",
        "checkpoint_every",
        "keep_checkpoints",
        "keep_policies",
        "threads",
    ]
)
"""Settings that may change when a run is resumed: none of them changes what an iteration does,
except that schedules (`final_max_kl`, `final_critic_learning_rate`) end at `total_steps`."""
LARGEST = {
    "threads": 1024,
    "eval_episodes": 10**6,
    "keep_checkpoints": 10**6,
    "sampling.num_envs": 10**6,
    "sampling.shards": 10**5,
    "sampling.vine.trunks": 10**6,
    "sampling.vine.actions": 10**6,
    "search.population": 10**6,
    "search.episodes": 10**6,
}
"""Largest values of settings that decide how much memory a run takes."""
MOST_STATES = 2**32
"""Largest number of states in an iteration."""
MOST_UNITS = 10**6
"""Largest number of units of a layer."""
MOST_LAYERS = 100
"""Largest number of hidden layers of a network."""
LONGEST_ID = 256
"""Largest number of characters of an environment's id."""


class OldRunWarning(UserWarning):
    """A run was written by an earlier version, without checksums for its settings and log."""


def read_run_config(folder: Path | str) -> TrainConfig:
    """Return the settings in the `config.json` of a run or of a saved agent.

    Raises:
        OSError: The file cannot be read, or it is a link or another special file.
        ValueError: The file is damaged, or it does not hold valid settings.
    """
    path = Path(folder) / CONFIG_FILE
    try:
        values = _parse(read_file(folder, CONFIG_FILE, limit=CONFIG_BYTES))
        checksum = values.pop(CHECKSUM, None)
        if checksum is None:
            notice_old_run(folder)
        elif checksum != strict_json.digest(values):
            raise ValueError(
                "it is damaged or was edited, since its SHA-256 does not match. Restore it from a"
                " copy; to train with other settings, use trellis train --config"
            )
        return bounded(from_json(values))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def has_checksum(folder: Path | str) -> bool:
    """Return whether the `config.json` of a run has a checksum, as those of this version do."""
    return CHECKSUM in _parse(read_file(folder, CONFIG_FILE, limit=CONFIG_BYTES))


def load_config(path: Path) -> TrainConfig:
    """Return the settings in a JSON file that the user names; an edited one brings a warning.

    Raises:
        ValueError: The file does not hold valid settings; the message says where and why.
    """
    real = path.resolve()
    try:
        values = _parse(read_file(real.parent, real.name, limit=CONFIG_BYTES))
        checksum = values.pop(CHECKSUM, None)
        config = bounded(from_json(values))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if checksum is not None and checksum != strict_json.digest(values):
        warnings.warn(
            f"{path} was edited or damaged since a run wrote it: its SHA-256 does not match. Using"
            " it as it is.",
            stacklevel=2,
        )
    return config


def settings_json(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as plain JSON values.

    Raises:
        TypeError: A setting, such as an option of the environment, is not a plain value.
        ValueError: A setting is out of range.
    """
    text = json.dumps(to_json(bounded(config)), allow_nan=False)
    return strict_json.parse(text.encode(), integers_below=INT64)


def config_text(values: Mapping[str, Any]) -> str:
    """Return the text of `config.json` for settings as plain JSON values."""
    return json.dumps({**values, CHECKSUM: strict_json.digest(values)}, indent=2) + "\n"


def from_checkpoint(values: Any, where: str) -> TrainConfig:
    """Return the settings that a checkpoint holds; `where` names it in errors."""
    try:
        return bounded(from_json(values))
    except ValueError as error:
        raise ValueError(f"the settings in {where} are not valid: {error}") from error


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return name, old and new value of each setting that differs and may not change."""
    before, after = flatten(old), flatten(new)
    names = sorted((before.keys() | after.keys()) - MAY_CHANGE)
    return [(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by full name, such as `step.max_kl`."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def bounded(config: TrainConfig) -> TrainConfig:
    """Return the settings; raise a ValueError if one of them is too large to be meant."""
    if not config.env.isprintable() or len(config.env) > LONGEST_ID:
        raise ValueError(
            f"env must be at most {LONGEST_ID} printable characters, got {shown(config.env)}"
        )
    for name, value in _settings(config):
        if isinstance(value, tuple) and (
            len(value) > MOST_LAYERS or max(value, default=0) > MOST_UNITS
        ):
            raise ValueError(
                f"{name} must be at most {MOST_LAYERS} layers of at most {MOST_UNITS:,} units,"
                f" got {shown(value)}"
            )
        limit = LARGEST.get(name, INT64)
        if isinstance(value, int) and value > limit:
            raise ValueError(f"{name} must be at most {limit:,}, got {shown(value)}")
    if config.sampling.most_steps > MOST_STATES:
        raise ValueError(
            f"sampling describes {config.sampling.most_steps:,} steps per iteration, more than the"
            f" {MOST_STATES:,} that are supported"
        )
    return config


def _is_network(units: tuple[int, ...]) -> bool:
    return len(units) <= MOST_LAYERS and max(units, default=0) <= MOST_UNITS


def notice_old_run(folder: Path | str) -> None:
    """Warn once that a run has no checksums, because an earlier version wrote it."""
    if is_known_as_old(folder):
        return
    _OLD_RUNS.add(Path(folder).resolve())
    warnings.warn(
        f"{folder} was written by an earlier version, without checksums for its settings and log,"
        " so damage there cannot be noticed. `trellis resume` adds them.",
        OldRunWarning,
        stacklevel=3,
    )


def is_known_as_old(folder: Path | str) -> bool:
    """Return whether `notice_old_run` has warned about this folder."""
    return Path(folder).resolve() in _OLD_RUNS


_OLD_RUNS: set[Path] = set()


def _parse(data: bytes) -> dict[str, Any]:
    values = strict_json.parse(data, integers_below=INT64)
    if not isinstance(values, dict):
        raise ValueError(f"a configuration must be a JSON object, got {shown(values)}")
    return values


def _settings(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield full name and value of every setting."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _settings(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value
