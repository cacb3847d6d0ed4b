"""The loop around `Trainer.iterate`: a run as a folder that can be left and taken up at any point.

Evaluations and checkpoints fall due when the step count crosses a multiple of their period, which
does not depend on where the run was interrupted. Evaluations change nothing but the best policy.
"""

import contextlib
import dataclasses
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.config import TrainConfig
from trellis.runs import checkpoint as checkpoints
from trellis.runs.folder import (
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

if TYPE_CHECKING:
    from trellis.runs.trainers import Learner
    from trellis.training.state import TrainState

Callback = Callable[["TrainState", dict[str, Any]], bool | None]
"""Called after each iteration with its state and metrics; False stops the run cleanly."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: the iteration was finished and a checkpoint written."""

    def __init__(self, state: "TrainState", folder: Path, received: signal.Signals):
        self.state, self.folder, self.received = state, folder, received
        super().__init__(
            f"stopped by {received.name} after iteration {state.iteration}"
            f" ({state.steps:,} steps); go on with: {resume_command(folder)}"
        )


def train(
    trainer: "Learner",
    folder: Path | str,
    *,
    resume: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = True,
) -> "TrainState":
    """Trains in `folder` until the run is over; the last state. With `resume`, goes on from there.

    The trainer stays open. Raises `RunInterrupted` after a Ctrl-C, and whatever stops an iteration,
    with the last checkpoint as it was.
    """
    folder = Path(folder)
    if resume:
        require_run(folder)
        with locked(folder):
            state = _take_up(trainer, folder)
            return _loop(trainer, folder, state, quiet, callbacks, tensorboard)
    require_empty(folder)
    state = trainer.start()  # Before the folder is made: what fails here leaves nothing behind.
    make_folder(folder)
    with locked(folder):
        require_empty(folder)  # Another process may have been quicker.
        write_config(folder, trainer.config)
        _save(trainer, folder, state)  # So that a run can be resumed from its first moment.
        return _loop(trainer, folder, state, quiet, callbacks, tensorboard)


def resume(
    folder: Path | str,
    *,
    steps: int | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = True,
    make_trainer: "Callable[[TrainConfig], Learner] | None" = None,
) -> "TrainState":
    """Goes on with the run in `folder`, bit for bit, up to `steps` if they are more than it had,
    however many iterations they are.

    `make_trainer` is for runs whose environment has no id.
    """
    folder = Path(folder)
    require_run(folder)
    with locked(folder):  # From here on nobody changes its settings.
        trainer = _made_again(folder, steps, make_trainer)
        try:
            state = _take_up(trainer, folder)
            return _loop(trainer, folder, state, quiet, callbacks, tensorboard)
        finally:
            trainer.close()


def _made_again(
    folder: Path, steps: int | None, make_trainer: "Callable[[TrainConfig], Learner] | None"
) -> "Learner":
    config = read_config(folder)
    if steps is not None:
        # A run that is limited by its iterations has fewer steps than it was allowed.
        planned = config.total_steps
        if config.max_iterations is not None and _has_begun(folder):
            planned = int(checkpoints.load_latest(folder / checkpoints.CHECKPOINTS).values["steps"])
        if steps < planned:
            raise RunFolderError(
                f"{folder} is a run of {planned:,} steps, which {steps:,} would not"
                " extend; give more, or leave them out to finish the run as it was planned"
            )
        config = dataclasses.replace(config, total_steps=steps, max_iterations=None)
    if make_trainer is None:
        from trellis.runs.trainers import make_trainer
    return make_trainer(config)


def _loop(
    trainer: "Learner",
    folder: Path,
    state: "TrainState",
    quiet: bool,
    callbacks: Sequence[Callback],
    tensorboard: bool,
) -> "TrainState":
    config = trainer.config
    going = not config.is_over(state.iteration, state.steps)
    with (
        RunLog(folder, from_iteration=state.iteration, tensorboard=tensorboard) as log,
        make_progress(
            config.total_steps,
            (state.iteration, state.steps),
            config.max_iterations,
            quiet=quiet,
        ) as progress,
        _StopSignals(quiet) as stop,
    ):
        while going:
            before = state.steps
            try:
                state, metrics = trainer.iterate(state)
                finished = config.is_over(state.iteration, state.steps)
                if finished or crossed(before, state.steps, config.eval_every):
                    state, evaluation = _evaluate(trainer, state)
                    metrics = {**metrics, **evaluation}
            except Exception as error:
                error.add_note(
                    f"The last checkpoint is intact; go on from it: {resume_command(folder)}"
                )
                raise
            log.write(metrics)
            progress.update(metrics)
            # All are called, whatever the first of them says; comparisons of arrays are np.bool_.
            answers = [callback(state, metrics) for callback in callbacks]
            stopped = any(isinstance(a, bool | np.bool_) and not a for a in answers)
            going = not (finished or stop.received or stopped)
            if not going or crossed(before, state.steps, config.checkpoint_every):
                log.sync()
                _save(trainer, folder, state)
    if stop.received:
        raise RunInterrupted(state, folder, stop.received)
    return state


def crossed(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` lies in (before, after]; never, if it is 0."""
    return every > 0 and after // every > before // every


def _evaluate(trainer: "Learner", state: "TrainState") -> tuple["TrainState", dict[str, Any]]:
    """The state with its best policy, and what the evaluation adds to the metrics."""
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


def _save(trainer: "Learner", folder: Path, state: "TrainState") -> None:
    arrays, values = trainer.freeze(state)
    keep = trainer.config.keep_checkpoints
    parent = folder / checkpoints.CHECKPOINTS
    checkpoints.save(parent, state.iteration, arrays, values, keep=keep)


def _take_up(trainer: "Learner", folder: Path) -> "TrainState":
    require_same_run(folder, trainer.config)
    if not _has_begun(folder):  # A kill, or a full disk, came before the first checkpoint.
        state = trainer.start()
        write_config(folder, trainer.config)
        _save(trainer, folder, state)
        return state
    checkpoint = checkpoints.load_latest(folder / checkpoints.CHECKPOINTS)
    differences = checkpoints.version_differences(checkpoint)
    if differences:
        warnings.warn(
            f"{folder} was trained with other versions ({'; '.join(differences)}): it goes on, but"
            " perhaps not bit for bit",
            stacklevel=4,
        )
    state = trainer.thaw(checkpoint.arrays, checkpoint.values)
    if read_config(folder) != trainer.config:
        write_config(folder, trainer.config)
    return state


def _has_begun(folder: Path) -> bool:
    """Whether there is anything to take up; of a run that has lost its checkpoints there is."""
    log = folder / METRICS
    saved = checkpoints.newest_iteration(folder / checkpoints.CHECKPOINTS) is not None
    return saved or (log.is_file() and log.stat().st_size > 0)


class _StopSignals:
    """The first SIGINT or SIGTERM sets `received`; a second one does what it always did."""

    def __init__(self, quiet: bool):
        self.received: signal.Signals | None = None
        self._quiet = quiet
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "_StopSignals":
        if threading.current_thread() is threading.main_thread():  # Only there may one ask for them
            for number in (signal.SIGINT, signal.SIGTERM):
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN:  # As nohup and background jobs have it.
                    self._old[number] = signal.SIG_DFL if old is None else old
                    signal.signal(number, self._receive)
        return self

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
        if not self._quiet:  # Past Python's buffers, which the interrupted line may be using.
            with contextlib.suppress(OSError):  # Whoever was listening may be gone.
                os.write(2, b"\nStopping after this iteration; again to stop at once.\n")

    def _restore(self) -> None:
        while self._old:
            signal.signal(*self._old.popitem())

    def __exit__(self, *_: object) -> None:
        self._restore()
