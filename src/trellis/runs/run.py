"""The one training loop, and a run as a folder that can be stopped and resumed at any point.

`advance` iterates a trainer: the command line, `TRPO.learn` and the experiments all use it. `train`
and `resume` wrap it in a folder with a log, progress, evaluations and checkpoints. Evaluations and
checkpoints are due when the step count crosses a multiple of their period, which does not depend on
where the run was interrupted.

The folder of a run that is resumed may come from anywhere. Its settings, checkpoint and log are
checked before they are used, and the module of its environment is imported only with consent.
"""

import contextlib
import dataclasses
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from trellis.config import TrainConfig
from trellis.envs.consent import require_consent
from trellis.envs.errors import EnvInterrupted
from trellis.runs.callback import Callback, RunStart, started, stops
from trellis.runs.folder import (
    CONFIG,
    locked,
    make_folder,
    read_config,
    require_empty,
    require_run,
    resume_command,
    write_config,
)
from trellis.runs.kept_policies import keep_policy
from trellis.runs.log import RunLog
from trellis.runs.progress import make_progress
from trellis.runs.run_state import (
    AnyTrainer,
    extended,
    load_state,
    read_checkpoint,
    require_state_of,
    save_state,
    warn_if_inexact,
)
from trellis.runs.trainers import make_trainer as default_make_trainer
from trellis.safe_files import is_there
from trellis.signals import StoppedAtOnce, stop_signals
from trellis.training.checkpoint_arrays import check_header
from trellis.training.state import TrainState


class RunOptions(TypedDict, total=False):
    """Options of `train`, `train_from` and `resume`."""

    quiet: bool
    """Whether to show no progress."""
    callbacks: Sequence[Callback]
    """Functions that are called after each iteration; one that returns False stops the run."""
    tensorboard: bool
    """Whether to write TensorBoard events. Default: yes."""
    log_interval: int | None
    """Iterations between lines of progress. Default: a bar, or a line every few seconds."""


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
    config: TrainConfig | None = None,
    folder: Path | None = None,
    eval_every: int | None = None,
    should_stop: Callable[[], object] = lambda: None,
    after: Callable[[int, TrainState, bool], None] = lambda before, state, going: None,
) -> TrainState:
    """Iterate until `is_over(state)`, or until a callback returns False.

    Args:
        trainer: Trainer that runs the iterations.
        state: State to start from.
        is_over: Function that returns whether a state is the last.
        callbacks: Functions that are all called after each iteration.
        config: Settings with the planned length, which schedules follow and callbacks may ask for.
            Default: those of the trainer.
        folder: Run folder, for callbacks that ask for it. Default: none.
        eval_every: Steps between evaluations, besides one at the end; 0 for that one alone, None
            for none at all.
        should_stop: Function that is called before the first iteration and after each one; a true
            result stops.
        after: Function that is called last, with the steps before the iteration, the state, and
            whether another iteration follows.
    """
    config = config or trainer.config
    with _planned(trainer, config), started(callbacks, RunStart(trainer, state, config, folder)):
        going = not (is_over(state) or should_stop())
        while going:
            before = state.steps
            state, metrics = trainer.iterate(state)
            over = is_over(state)
            if eval_every is not None and (over or crossed(before, state.steps, eval_every)):
                state, evaluation = trainer.with_evaluation(state)
                metrics |= evaluation
            answers = [callback(state, metrics) for callback in callbacks]
            going = not (over or any(map(stops, answers)) or should_stop())
            after(before, state, going)
    return state


@contextlib.contextmanager
def _planned(trainer: AnyTrainer, config: TrainConfig) -> Iterator[None]:
    """Make the schedules of a trainer follow the planned length, until the block ends."""
    before = trainer.config
    length = {"total_steps": config.total_steps, "max_iterations": config.max_iterations}
    trainer.config = dataclasses.replace(before, **length)
    try:
        yield
    finally:
        trainer.config = before


@contextlib.contextmanager
def watching(trainer: AnyTrainer, on_steps: Callable[[str, int], None] | None) -> Iterator[None]:
    """Report the steps of slow environments until the block ends; None for no reports."""
    if on_steps is not None:
        trainer.watch(on_steps)
    try:
        yield
    finally:
        trainer.watch(lambda what, steps: None)


def train(
    trainer: AnyTrainer, folder: Path | str, *, resume: bool = False, **options: Unpack[RunOptions]
) -> TrainState:
    """Train in `folder` until the run is over, and return the last state.

    The trainer stays open. Raises `RunInterrupted` after a Ctrl-C, and whatever stops an iteration,
    with the last checkpoint intact.

    Args:
        trainer: Trainer that runs the iterations.
        folder: Run folder: a new one, or with `resume` the one to continue.
        resume: Whether to continue a run.
        **options: See `RunOptions`.
    """
    folder = Path(folder).absolute()  # An environment may change the working directory.
    if resume:
        require_run(folder)
        with locked(folder):
            saved = read_checkpoint(folder, read_config(folder))
            return _train(trainer, folder, load_state(trainer, folder, saved), **options)
    require_empty(folder)
    state = trainer.start()  # Before the folder is made: what fails here leaves nothing behind.
    warn_if_inexact(trainer)
    make_folder(folder)
    with locked(folder):
        require_empty(folder)  # Another process may have been quicker.
        write_config(folder, trainer.config)
        save_state(trainer, folder, state)  # So that a run can be resumed from its first moment.
        return _train(trainer, folder, state, **options)


def train_from(
    trainer: AnyTrainer,
    folder: Path | str,
    state: TrainState,
    config: TrainConfig,
    **options: Unpack[RunOptions],
) -> TrainState:
    """Train from a state in memory in a run folder, and return the last state.

    Args:
        trainer: Trainer that runs the iterations. It stays open.
        folder: Run folder: a new one, or one whose newest checkpoint holds this state.
        state: State to start from.
        config: Settings of the trainer with the length of the run and its evaluations.
        **options: See `RunOptions`.

    Raises:
        RunFolderError: The folder holds another run, or another state of this one.
    """
    folder = Path(folder).absolute()
    if not is_there(folder, CONFIG):
        require_empty(folder)
    make_folder(folder)
    with locked(folder):
        if is_there(folder, CONFIG):
            require_state_of(folder, config, state)
        else:
            require_empty(folder)
            warn_if_inexact(trainer)
        write_config(folder, config)
        save_state(trainer, folder, state)
        return _train(trainer, folder, state, config, **options)


def resume(
    folder: Path | str,
    *,
    steps: int | None = None,
    make_trainer: Callable[[TrainConfig], AnyTrainer] | None = None,
    cluster: str | None = None,
    workers: int | None = None,
    devices: int | None = None,
    trust_env: bool = False,
    **options: Unpack[RunOptions],
) -> TrainState:
    """Continue the run in `folder`, bit for bit, and return the last state.

    Args:
        folder: Run folder.
        steps: Total number of steps to extend the run to, however many iterations they take.
        make_trainer: Function that makes the trainer, for runs whose environment has no id. It
            decides what it imports. Default: the trainer that the settings describe.
        cluster: Where the shards run, as in `trainers.make_trainer`.
        workers: Number of Ray workers.
        devices: Number of devices, as in `trainers.make_trainer`.
        trust_env: Whether to import the module that the run names for its environment.
        **options: See `RunOptions`.

    Raises:
        ConsentError: The environment needs a module that has not been imported, and `trust_env` is
            not set.
    """
    folder = Path(folder).absolute()  # An environment may change the working directory.
    require_run(folder)
    with locked(folder):  # From here on nobody changes its settings.
        config = read_config(folder)
        if make_trainer is None:
            require_consent(config.env, config.env_options, folder, trusted=trust_env)
            saved = read_checkpoint(folder, config, check_header)
            made = default_make_trainer(
                extended(folder, config, saved, steps),
                cluster=cluster,
                workers=workers,
                devices=devices,
            )
        else:
            saved = read_checkpoint(folder, config)
            made = make_trainer(extended(folder, config, saved, steps))
        with closing(made) as trainer:
            return _train(trainer, folder, load_state(trainer, folder, saved), **options)


@contextlib.contextmanager
def closing(trainer: AnyTrainer) -> Iterator[AnyTrainer]:
    """Close the trainer at the end; if closing fails too, add a note to the block's error."""
    try:
        yield trainer
    except BaseException as error:
        try:
            trainer.close()
        except Exception as second:
            error.add_note(str(second))
        raise
    trainer.close()


def _train(
    trainer: AnyTrainer,
    folder: Path,
    state: TrainState,
    config: TrainConfig | None = None,
    *,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = True,
    log_interval: int | None = None,
) -> TrainState:
    config = config or trainer.config
    begun = (state.iteration, state.steps)
    with (
        RunLog(folder, from_iteration=state.iteration, tensorboard=tensorboard) as log,
        make_progress(config, begun, quiet=quiet, log_interval=log_interval) as progress,
        stop_signals(quiet=quiet) as signals,
        _noting_checkpoint(folder),
        watching(trainer, None if quiet else progress.add_steps),
    ):
        if config.keep_policies:
            keep_policy(trainer, folder, state)

        def save_if_due(before: int, state: TrainState, going: bool) -> None:
            if config.keep_policies:
                keep_policy(trainer, folder, state)
            if not going or crossed(before, state.steps, config.checkpoint_every):
                log.sync()
                save_state(trainer, folder, state)

        state = advance(
            trainer,
            state,
            lambda state: config.is_over(state.iteration, state.steps),
            # The user's first, which may add to the metrics.
            [*callbacks, lambda _, row: log.write(row), lambda _, row: progress.update(row)],
            config=config,
            folder=folder,
            eval_every=config.eval_every,
            should_stop=signals.check,
            after=save_if_due,
        )
    if signals.received:
        raise RunInterrupted(state, folder, signals.received[0])
    return state


def crossed(before: int, after: int, every: int) -> bool:
    """Return whether a multiple of `every` lies in (before, after]; never, if it is 0."""
    return every > 0 and after // every > before // every


@contextlib.contextmanager
def _noting_checkpoint(folder: Path) -> Iterator[None]:
    """Add to any error how to continue from the last checkpoint.

    A KeyboardInterrupt from an environment is such an error: signals do not raise one here.
    """
    try:
        try:
            yield
        except EnvInterrupted as interrupted:
            raise interrupted.error from interrupted.__cause__
    except (Exception, StoppedAtOnce) as error:
        if is_there(folder, CONFIG):
            command = resume_command(folder)
            error.add_note(f"The last checkpoint is intact; continue with: {command}")
        raise
