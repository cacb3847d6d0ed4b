"""Defines the errors that a batch of environments raises."""

import functools
from collections.abc import Callable


class EnvError(RuntimeError):
    """An environment failed; the message says which one, at which step, and with which seed.

    Args:
        reason: What happened.
        env_id: Id of the environment.
        index: Index of the environment in its batch.
        step: Step of the episode.
        seed: Seed of the episode; None if the environment was never reset.
    """

    def __init__(self, reason: str, *, env_id: str, index: int, step: int, seed: int | None):
        self.env_id, self.index, self.step, self.seed = env_id, index, step, seed
        self.reason = reason
        super().__init__(
            f"{env_id}: {reason} (environment {index} of its batch, step {step} of the episode"
            f" with seed {seed})"
        )

    def __reduce__(self) -> tuple[Callable[[], "EnvError"], tuple[()]]:
        """Return a constructor for pickle, because the error has keyword arguments."""
        where = {name: getattr(self, name) for name in ("env_id", "index", "step", "seed")}
        return functools.partial(type(self), self.reason, **where), ()


class EnvRaisedError(EnvError):
    """The environment raised an exception, which is the cause of this error."""


class BadValueError(EnvError):
    """The environment returned NaN, infinity or a number outside of its space."""


class BadShapeError(EnvError):
    """The environment returned a shape, structure or data type that does not match its space."""


class WorkerTimeoutError(EnvError):
    """A worker process did not answer within its time limit."""


class WorkerDiedError(EnvError):
    """A worker process ended unexpectedly."""


class NotRestorableError(RuntimeError):
    """The environment cannot be restored; the message gives the reason and a remedy."""
