"""Callbacks of the training loop: functions that are called after each iteration.

Any function of a state and its metrics is a callback. There is one rule: False stops training. A
callback may also be an object with `start(run)`, which is called before the first iteration, and
`close()`, which is called after the last one, also after an error.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.config import TrainConfig
from trellis.training.base import TrainerBase
from trellis.training.state import TrainState

Callback = Callable[[TrainState, dict[str, Any]], bool | None]
"""Called after each iteration with its state and metrics; False stops training."""


@dataclass(frozen=True)
class RunStart:
    """What a callback gets before the first iteration."""

    trainer: TrainerBase[Any]
    """Trainer that runs the iterations, for evaluations and checkpoints."""
    state: TrainState
    """State that training starts from."""
    config: TrainConfig
    """Settings, with `total_steps` at which this training ends."""
    folder: Path | None = None
    """Run folder; None for training that writes no files."""


def stops(answer: object) -> bool:
    """Return whether the answer of a callback stops training: False does, and nothing else.

    A comparison of arrays is `np.bool_`. Other answers, such as 0 or None, do not stop.
    """
    return isinstance(answer, bool | np.bool_) and not answer


@contextlib.contextmanager
def started(callbacks: Sequence[Callback], run: RunStart) -> Iterator[None]:
    """Start the callbacks that have a `start` method, and close those that have `close`."""
    with contextlib.ExitStack() as open_callbacks:
        for callback in callbacks:
            start, close = getattr(callback, "start", None), getattr(callback, "close", None)
            if callable(start):
                start(run)
            if callable(close):
                open_callbacks.callback(close)
        yield
