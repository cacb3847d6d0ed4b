"""The one training loop, and a run as a folder that can be left and resumed at any point.

`advance` iterates a trainer: the command line, `TRPO.learn` and the experiments all use it. `train`
and `resume` wrap it in a folder with a log, progress, evaluations and checkpoints. Evaluations and
checkpoints are due when the step count crosses a multiple of their period, which does not depend on
where the run was interrupted.
"""

import contextlib
import dataclasses
import logging
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from trellis.checkpoint_format import CHECKPOINTS, load_latest, newest_iteration
from trellis.config import TrainConfig
from trellis.envs.errors import EnvInterrupted
from trellis.runs.checkpoint import save, version_differences
from trellis.runs.folder import (
    CONFIG,
    RunFolderError,
    locked,
    make_folder,
    read_config,
    require_empty,
    require_run,
    require_same_run,
    resume_command,
    write_config,
)
from trellis.runs.log import METRICS, RunLog
from trellis.runs.progress import make_progress
from trellis.runs.trainers import make_trainer as default_make_trainer
from trellis.signals import StoppedAtOnce, stop_signals
from trellis.training.base import TrainerBase
from trellis.training.state import TrainState

logger = logging.getLogger(__name__)

Callback = Callable[[TrainState, dict[str, Any]], bool | None]
"""Called after each iteration with its state and metrics; False stops training."""
AnyTrainer = TrainerBase[Any]


class RunOptions(TypedDict, total=False):
    """RunOptions of `train` and `resume`."""

    quiet: bool
    """Whether to show no progress."""
    callbacks: Sequence[Callback]
    """Called after each iteration; False stops."""
    tensorboard: bool
    """Whether to write TensorBoard events; by default yes."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP: the iteration was finished and a checkpoint written."""

    def __init__(self, state: TrainState, folder: Path, received: signal.Signals):
        self.state, self.folder, self.received = state, folder, received
        super().__init__(
            f"stopped by {received.name} after iteration {state.iteration}"
            f" ({state.steps:,} steps); continue with: {resume_command(folder)}"
        )


def advance(
    trainer: AnyTrainer,
    state: TrainState,
    is_over: Callable[[TrainState], bool],
    callbacks: Sequence[Callback] = (),
    *,
    eval_every: int | None = None,
    should_stop: Callable[[], object] = lambda: None,
    after: Callable[[int, TrainState, bool], None] = lambda before, state, going: None,
) -> TrainState:
    """Iterate until `is_over(state)`, or until a callback returns False.

    Args:
        trainer: what iterates.
        state: where to begin.
        is_over: whether a state is the last.
        callbacks: called after each iteration, all of them, whatever the first returns.
        eval_every: steps between evaluations, besides one at the end; 0 for that one alone, None
            for none at all.
        should_stop: asked before each iteration; anything true stops.
        after: called last, with the steps before the iteration and whether another one follows.
    """
    going = not (is_over(state) or should_stop())
    while going:
        before = state.steps
        state, metrics = trainer.iterate(state)
        over = is_over(state)
        if eval_every is not None and (over or crossed(before, state.steps, eval_every)):
            state, evaluation = _evaluate(trainer, state)
            metrics |= evaluation
        answers = [callback(state, metrics) for callback in callbacks]
        # A comparison of arrays is np.bool_. Other answers, such as 0 or None, do not stop.
        stopped = any(isinstance(answer, bool | np.bool_) and not answer for answer in answers)
        going = not (over or stopped or should_stop())
        after(before, state, going)
    return state


def train(
    trainer: AnyTrainer, folder: Path | str, *, resume: bool = False, **options: Unpack[RunOptions]
) -> TrainState:
    """Train in `folder` until the run is over, and return the last state.

    The trainer stays open. Raises `RunInterrupted` after a Ctrl-C, and whatever stops an iteration,
    with the last checkpoint intact.

    Args:
        trainer: what iterates.
        folder: the run folder; a new one, or with `resume` the one to continue.
        resume: whether to continue a run.
        **options: see `RunOptions`.
    """
    folder = Path(folder).absolute()  # An environment may change the working directory.
    if resume:
        require_run(folder)
        with locked(folder):
            return _train(trainer, folder, _load(trainer, folder), **options)
    require_empty(folder)
    state = trainer.start()  # Before the folder is made: what fails here leaves nothing behind.
    _warn_if_inexact(trainer)
    make_folder(folder)
    with locked(folder):
        require_empty(folder)  # Another process may have been quicker.
        write_config(folder, trainer.config)
        _save(trainer, folder, state)  # So that a run can be resumed from its first moment.
        return _train(trainer, folder, state, **options)


def resume(
    folder: Path | str,
    *,
    steps: int | None = None,
    make_trainer: Callable[[TrainConfig], AnyTrainer] = default_make_trainer,
    **options: Unpack[RunOptions],
) -> TrainState:
    """Continue the run in `folder`, bit for bit, and return the last state.

    Args:
        folder: the run folder.
        steps: extends the run to this many steps in all, however many iterations they are.
        make_trainer: makes the trainer, for runs whose environment has no id.
        **options: see `RunOptions`.
    """
    folder = Path(folder).absolute()  # An environment may change the working directory.
    require_run(folder)
    with (
        locked(folder),  # From here on nobody changes its settings.
        closing(make_trainer(_extended(folder, steps))) as trainer,
    ):
        return _train(trainer, folder, _load(trainer, folder), **options)


@contextlib.contextmanager
def closing(trainer: AnyTrainer) -> Iterator[AnyTrainer]:
    """Close the trainer in the end; an error of the block stays the first thing to be read."""
    try:
        yield trainer
    except BaseException as error:
        try:
            trainer.close()
        except Exception as second:
            error.add_note(str(second))
        raise
    trainer.close()


def _extended(folder: Path, steps: int | None) -> TrainConfig:
    """Return the settings of a run, extended to so many steps if they are more than it had."""
    config = read_config(folder)
    if steps is None:
        return config
    # A run that is limited by its iterations has fewer steps than it was allowed.
    planned = config.total_steps
    if config.max_iterations is not None and _has_begun(folder):
        planned = int(load_latest(folder / CHECKPOINTS).values["steps"])
    if steps < planned:
        raise RunFolderError(
            f"{folder} is a run of {planned:,} steps, which {steps:,} would not"
            " extend; give more, or leave them out to finish the run as it was planned"
        )
    return dataclasses.replace(config, total_steps=steps, max_iterations=None)


def _train(
    trainer: AnyTrainer,
    folder: Path,
    state: TrainState,
    *,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = True,
) -> TrainState:
    config = trainer.config
    with (
        RunLog(folder, from_iteration=state.iteration, tensorboard=tensorboard) as log,
        make_progress(config, (state.iteration, state.steps), quiet=quiet) as progress,
        stop_signals(quiet=quiet) as signals,
        _noting_checkpoint(folder),
    ):

        def save_if_due(before: int, state: TrainState, going: bool) -> None:
            if not going or crossed(before, state.steps, config.checkpoint_every):
                log.sync()
                _save(trainer, folder, state)

        state = advance(
            trainer,
            state,
            lambda state: config.is_over(state.iteration, state.steps),
            [lambda _, row: log.write(row), lambda _, row: progress.update(row), *callbacks],
            eval_every=config.eval_every,
            should_stop=signals.check,
            after=save_if_due,
        )
    if signals.received:
        raise RunInterrupted(state, folder, signals.received[0])
    return state


def crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; never, if it is 0."""
    return every > 0 and after // every > before // every


@contextlib.contextmanager
def _noting_checkpoint(folder: Path) -> Iterator[None]:
    """Add to any error how to continue from the last checkpoint.

    A KeyboardInterrupt of an environment is such an error: here no signal raises one like it.
    """
    try:
        try:
            yield
        except EnvInterrupted as interrupted:
            raise interrupted.error from interrupted.__cause__
    except (Exception, StoppedAtOnce) as error:
        if (folder / CONFIG).is_file():
            command = resume_command(folder)
            error.add_note(f"The last checkpoint is intact; continue with: {command}")
        raise


def _evaluate(trainer: AnyTrainer, state: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """Return the state with its best policy, and what the evaluation adds to the metrics."""
    evaluation = trainer.evaluate(state, trainer.config.eval_episodes)
    if evaluation.mean_return > state.best_return:
        state = dataclasses.replace(
            state,
            best_return=evaluation.mean_return,
            best_theta=state.theta,
            best_moments=state.observation_moments,
        )
    return state, {
        "eval_return_mean": evaluation.mean_return,
        "eval_return_std": evaluation.std_return,
        "eval_length_mean": evaluation.mean_length,
    }


def _save(trainer: AnyTrainer, folder: Path, state: TrainState) -> None:
    if not (folder / CONFIG).is_file():  # A new folder in its place would hold no run.
        raise RunFolderError(
            f"{folder / CONFIG} has disappeared while the run was training, so that iteration"
            f" {state.iteration} cannot be saved; start a new run in another folder"
        )
    arrays, values = trainer.to_checkpoint(state)
    keep = trainer.config.keep_checkpoints
    save(folder / CHECKPOINTS, state.iteration, arrays, values, keep=keep)


def _load(trainer: AnyTrainer, folder: Path) -> TrainState:
    """Return the state of the newest checkpoint; the first state, if there is none yet."""
    require_same_run(folder, trainer.config)
    if not _has_begun(folder):  # A kill, or a full disk, came before the first checkpoint.
        state = trainer.start()
        _warn_if_inexact(trainer)
        write_config(folder, trainer.config)
        _save(trainer, folder, state)
        return state
    checkpoint = load_latest(folder / CHECKPOINTS)
    differences = version_differences(checkpoint)
    if differences:
        warnings.warn(
            f"{folder} was trained with other versions ({'; '.join(differences)}): it continues,"
            " but perhaps not bit for bit",
            stacklevel=4,
        )
    state = trainer.from_checkpoint(checkpoint.arrays, checkpoint.values)
    if read_config(folder) != trainer.config:
        write_config(folder, trainer.config)
    return state


def _warn_if_inexact(trainer: AnyTrainer) -> None:
    """Say at the start of a run that it could not be resumed bit for bit, and why not."""
    if trainer.inexact:
        logger.warning(
            "%s: if this run is interrupted, it can be resumed, but not bit for bit.",
            trainer.inexact,
        )


def _has_begun(folder: Path) -> bool:
    """Whether there is something to continue; a run that has lost its checkpoints counts."""
    log = folder / METRICS
    saved = newest_iteration(folder / CHECKPOINTS) is not None
    return saved or (log.is_file() and log.stat().st_size > 0)
