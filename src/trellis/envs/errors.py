"""The errors that a batch of environments raises."""

import functools
from collections.abc import Callable

MOST = 500
"""Longest message of an environment that is repeated, in characters."""


class EnvError(RuntimeError):
    """An environment misbehaved; the message says which one, where, and how to reproduce it."""

    def __init__(self, reason: str, *, env_id: str, index: int, step: int, seed: int | None):
        self.env_id, self.index, self.step, self.seed = env_id, index, step, seed
        self.reason = reason
        when = "before its first episode"
        if seed is not None:
            when = f"step {step} of an episode that was reset with seed {seed}"
        super().__init__(f"{env_id}: {reason} (environment {index} of its batch, {when})")

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


class EnvInterrupted(KeyboardInterrupt):
    """A KeyboardInterrupt that came out of an environment: a Ctrl-C there, or its own.

    Attributes:
        error: Where it happened. Raise it where Ctrl-C cannot have been the reason.
    """

    def __init__(self, error: EnvError):
        self.error = error
        super().__init__(str(error))


class NotRestorableError(RuntimeError):
    """The environment cannot be restored; the message says why and what would help."""


def describe(error: BaseException) -> str:
    """Return the kind and the message of an exception as one line of bounded length."""
    try:
        text = str(error)
    except BaseException as second:
        text = f"its message raised {type(second).__name__}"
    text = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * MOST]).split())
    if len(text) > MOST:
        text = f"{text[:MOST]} …"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else f"{kind} without a message"
