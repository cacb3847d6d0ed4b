"""The errors that a batch of environments raises."""

import functools
from collections.abc import Callable


class EnvError(RuntimeError):
    """An environment misbehaved; the message says which one, where, and how to reproduce it."""

    def __init__(self, reason: str, *, env_id: str, index: int, step: int, seed: int | None):
        self.env_id, self.index, self.step, self.seed = env_id, index, step, seed
        self.reason = reason
        super().__init__(
            f"{env_id}: {reason} (environment {index} of its batch, step {step} of an episode"
            f" that was reset with seed {seed})"
        )

    def __reduce__(self) -> tuple[Callable[[], "EnvError"], tuple[()]]:
        """Return how to rebuild the error, which has keyword arguments, in another process."""
        where = {name: getattr(self, name) for name in ("env_id", "index", "step", "seed")}
        return functools.partial(type(self), self.reason, **where), ()


class EnvRaisedError(EnvError):
    """The environment raised; the original exception is the cause."""


class BadValueError(EnvError):
    """The environment returned NaN, infinity or a number outside of its space."""


class BadShapeError(EnvError):
    """The environment returned a shape, structure or dtype that its space does not have."""


class WorkerTimeoutError(EnvError):
    """A worker process did not answer within its time limit."""


class WorkerDiedError(EnvError):
    """A worker process ended while it was needed."""


class NotRestorableError(RuntimeError):
    """The environment cannot be restored; the message says why and what would help."""
