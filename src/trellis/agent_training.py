"""Trains an agent without a run folder, for `TRPO.learn` without `log_dir`."""

from collections.abc import Sequence
from typing import Any

from trellis.config import TrainConfig
from trellis.runs.callback import Callback
from trellis.runs.progress import make_progress
from trellis.runs.run import advance, watching
from trellis.training.base import TrainerBase
from trellis.training.state import TrainState


def train_in_memory(
    trainer: TrainerBase[Any],
    state: TrainState,
    config: TrainConfig,
    *,
    callbacks: Sequence[Callback],
    eval_every: int | None,
    quiet: bool,
    log_interval: int | None,
) -> None:
    """Train until the end that the settings name, and write no files.

    Args:
        trainer: Trainer of the agent.
        state: State that training starts from.
        config: Settings, with the end of the training.
        callbacks: Functions that get the state and the metrics of every iteration.
        eval_every: Whether there are evaluations: None for none, else those of the settings.
        quiet: Whether to show no progress.
        log_interval: Iterations between two lines of progress, which replace the bar.
    """
    begun = (state.iteration, state.steps)
    with (
        make_progress(config, begun, quiet=quiet, log_interval=log_interval) as progress,
        watching(trainer, None if quiet else progress.add_steps),
    ):
        advance(
            trainer,
            state,
            lambda state: config.is_over(state.iteration, state.steps),
            [*callbacks, lambda _, metrics: progress.update(metrics)],
            config=config,
            eval_every=None if eval_every is None else config.eval_every,
        )
