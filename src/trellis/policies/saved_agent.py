"""Reads the settings and the newest checkpoint of a run folder or of a saved agent.

Settings are in two places: `config.json` and the checkpoint. They are compared, so that nobody gets
a policy with the settings of another run.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from trellis.checkpoint_format import (
    CHECKPOINTS,
    Checkpoint,
    Header,
    MismatchError,
    load_latest,
)
from trellis.config import CONFIG_FILE, TrainConfig
from trellis.config.file import (
    LOG_FILE,
    differences,
    from_checkpoint,
    read_run_config,
    settings_json,
)
from trellis.safe_files import is_there
from trellis.strict_json import shown

CheckAgent = Callable[[TrainConfig, Header], Collection[str] | None]
"""A `CheckHeader` that also gets the settings."""


def read_agent(
    folder: str | Path, check: CheckAgent | None = None
) -> tuple[TrainConfig, Checkpoint]:
    """Read the settings and the newest checkpoint of a run or of a saved agent.

    Args:
        folder: The folder.
        check: Decides, before arrays are read, whether they fit and which of them are needed.

    Raises:
        CheckpointError: There is no whole checkpoint, or it does not fit the settings.
        ValueError: The settings are damaged or not valid.
    """
    folder, found = Path(folder), []
    if not is_there(folder, CONFIG_FILE) and not is_there(folder, CHECKPOINTS):
        raise FileNotFoundError(f"{folder} is not a run or a saved agent: it has no {CONFIG_FILE}")

    def check_header(header: Header) -> Collection[str] | None:
        found[:] = [_settings(folder, header.config)]
        return None if check is None else check(found[0], header)

    checkpoint = load_latest(folder / CHECKPOINTS, check_header)
    return found[0], checkpoint


def _settings(folder: Path, saved: Mapping[str, Any] | None) -> TrainConfig:
    """Return the settings that go with a checkpoint, which holds `saved`.

    A saved agent is replaced by replacing its checkpoint: the settings there count. A run may have
    been extended since, which `config.json` knows; other settings have to be the same.
    """
    inside = None  # An earlier version wrote the checkpoint.
    if saved is not None:
        inside = from_checkpoint(saved, f"the checkpoint of {folder}")
        if not is_there(folder, LOG_FILE):
            return inside
    try:
        outside = read_run_config(folder)
    except OSError as error:
        reason = error.strerror or error
        raise MismatchError(f"{folder / CONFIG_FILE} cannot be read: {reason}") from error
    if inside is not None:
        require_same_settings(folder, outside, inside)
    return outside


def require_same_settings(folder: Path, outside: TrainConfig, inside: TrainConfig) -> None:
    """Raise `MismatchError` if `config.json` and a checkpoint of one run have other settings."""
    found = differences(settings_json(outside), settings_json(inside))
    if found:
        words = "; ".join(f"{n} is {shown(o)}, there {shown(i)}" for n, o, i in found)
        raise MismatchError(
            f"{folder / CONFIG_FILE} has other settings than the checkpoint ({words}): it was"
            " changed or belongs to another run. Restore it from a copy"
        )
