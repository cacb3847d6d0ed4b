"""The state of a run in its folder: what a checkpoint must fit, and how a trainer restores it.

The folder of a run that is resumed may come from anywhere. Its settings must be those that its
checkpoint holds, and every array must fit them, before a trainer sees any of it.
"""

import dataclasses
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trellis.checkpoint_format import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointError,
    Header,
    load,
    load_latest,
    newest_iteration,
)
from trellis.config import TrainConfig
from trellis.config.file import LOG_FILE, from_checkpoint, has_checksum
from trellis.envs.errors import EnvError
from trellis.policies.saved_agent import require_same_settings
from trellis.policies.saved_layout import read_count
from trellis.runs.checkpoint import save, version_differences
from trellis.runs.folder import (
    CONFIG,
    RunFolderError,
    as_json,
    locked,
    make_folder,
    read_config,
    require_same_run,
    write_config,
)
from trellis.safe_files import is_there
from trellis.training.base import TrainerBase
from trellis.training.state import TrainState

logger = logging.getLogger(__name__)

AnyTrainer = TrainerBase[Any]


def read_checkpoint(
    folder: Path,
    config: TrainConfig,
    check: Callable[[TrainConfig, Header], None] = lambda config, header: None,
    iteration: int | None = None,
) -> Checkpoint | None:
    """Return the newest whole checkpoint of a run; None if it has not started yet.

    Its settings must be those of `config.json`, and `check` must accept it.

    Args:
        folder: Run folder.
        config: Settings of the run.
        check: Function that raises if a checkpoint does not fit the settings.
        iteration: Iteration of the checkpoint. Default: the newest one.
    """
    if not _has_begun(folder):  # A kill, or a full disk, came before the first checkpoint.
        return None

    def check_all(header: Header) -> None:
        if header.config is not None:
            inside = from_checkpoint(header.config, f"the checkpoint of {folder}")
            require_same_settings(folder, config, inside)
        check(config, header)

    if iteration is not None:
        return load(folder / CHECKPOINTS / f"{iteration:06d}", check_all)
    return load_latest(folder / CHECKPOINTS, check_all)


def extended(
    folder: Path, config: TrainConfig, saved: Checkpoint | None, steps: int | None
) -> TrainConfig:
    """Return the settings of a run, extended to this many steps if they are more than it had."""
    if steps is None:
        return config
    # A run that is limited by its iterations has fewer steps than it was allowed.
    planned = config.total_steps
    if config.max_iterations is not None and saved is not None:
        planned = read_count(saved.values, "steps")
    if steps < planned:
        raise RunFolderError(
            f"{folder} is a run of {planned:,} steps, which {steps:,} would not extend; give more"
            " steps, or none to finish the run as it was planned"
        )
    return dataclasses.replace(config, total_steps=steps, max_iterations=None)


def save_state(trainer: AnyTrainer, folder: Path, state: TrainState) -> None:
    """Write a checkpoint of the state, unless the run has disappeared."""
    if not is_there(folder, CONFIG):  # A new folder in its place would hold no run.
        raise RunFolderError(
            f"cannot save iteration {state.iteration}: {folder / CONFIG} disappeared during"
            " training; start a new run in another folder"
        )
    arrays, values = trainer.to_checkpoint(state)
    keep, config = trainer.config.keep_checkpoints, as_json(trainer.config)
    save(folder / CHECKPOINTS, state.iteration, arrays, values, keep=keep, config=config)


def save_agent(
    folder: Path,
    config: TrainConfig,
    iteration: int,
    arrays: Mapping[str, np.ndarray],
    values: Mapping[str, Any],
) -> None:
    """Write a whole state into a folder for `TRPO.load`; an agent there is replaced in one step.

    Args:
        folder: Folder to write.
        config: Settings of the agent.
        iteration: Iterations so far.
        arrays: Arrays of the checkpoint.
        values: Plain values of the checkpoint.

    Raises:
        RunFolderError: The folder holds a training run.
    """
    if is_there(folder, LOG_FILE):
        raise RunFolderError(
            f"{folder} holds a training run, whose checkpoints would be lost: save to another"
            " folder"
        )
    make_folder(folder)
    with locked(folder):
        # The checkpoint holds the settings too: config.json is a copy for people.
        save(folder / CHECKPOINTS, iteration, arrays, values, keep=1, config=as_json(config))
        write_config(folder, config)


def load_state(trainer: AnyTrainer, folder: Path, saved: Checkpoint | None) -> TrainState:
    """Return the state of a checkpoint; the first state, if there is no checkpoint yet."""
    require_same_run(folder, trainer.config)
    if saved is None:
        state = trainer.start()
        warn_if_inexact(trainer)
        write_config(folder, trainer.config)
        save_state(trainer, folder, state)
        return state
    differences = version_differences(saved)
    if differences:
        warnings.warn(
            f"{folder} was trained with other versions ({'; '.join(differences)}): it continues,"
            " but perhaps not bit for bit",
            stacklevel=4,
        )
    state = restore(trainer, saved)
    if read_config(folder) != trainer.config or not has_checksum(folder):
        write_config(folder, trainer.config)
    return state


def require_state_of(folder: Path, config: TrainConfig, state: TrainState) -> None:
    """Raise unless the newest checkpoint of the run in `folder` holds this state."""
    require_same_run(folder, config)
    saved = read_checkpoint(folder, read_config(folder))
    if saved is None:
        return
    same = np.array_equal(saved.arrays["theta"], state.theta)
    if saved.iteration != state.iteration or not same:
        raise RunFolderError(
            f"{folder} holds another run, or another state of this one (iteration"
            f" {saved.iteration}, here {state.iteration}): choose another log_dir, or continue it"
            f" with TRPO.load({str(folder)!r})"
        )


def restore(trainer: AnyTrainer, saved: Checkpoint) -> TrainState:
    """Return the state of a checkpoint, with an error that names what cannot be restored."""
    try:
        return trainer.from_checkpoint(saved.arrays, saved.values)
    except (LookupError, TypeError, ValueError, ArithmeticError, EnvError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = error.reason if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"the checkpoint of iteration {saved.iteration} cannot be restored in"
            f" {trainer.config.env}: {reason.strip().splitlines()[-1]}"
        ) from error


def warn_if_inexact(trainer: AnyTrainer) -> None:
    """Warn at the start of a run that it cannot be resumed bit for bit, and say why."""
    if trainer.inexact:
        logger.warning(
            "%s: if this run is interrupted, it can be resumed, but not bit for bit.",
            trainer.inexact,
        )


def _has_begun(folder: Path) -> bool:
    """Return whether there is something to continue, also if its checkpoints are lost."""
    if newest_iteration(folder / CHECKPOINTS) is not None:
        return True
    return is_there(folder, LOG_FILE) and os.lstat(folder / LOG_FILE).st_size > 0
