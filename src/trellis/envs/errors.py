"""Defines the errors that a batch of environments raises."""

import functools
import os
import traceback
from collections.abc import Callable

MOST = 500
"""Number of characters after which the message of an environment is cut off."""


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
        when = "before its first episode"
        if seed is not None:
            when = f"step {step} of the episode with seed {seed}"
        super().__init__(f"{env_id}: {reason} (environment {index} of its batch, {when})")

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


class EnvInterrupted(KeyboardInterrupt):
    """A KeyboardInterrupt from an environment: a Ctrl-C while it ran, or one that it raised.

    Attributes:
        error: Error that says where it happened. Raise it where Ctrl-C cannot be the reason.
    """

    def __init__(self, error: EnvError):
        self.error = error
        super().__init__(str(error))


class NotRestorableError(RuntimeError):
    """The environment cannot be restored; the message gives the reason and a remedy."""


def describe(error: BaseException) -> str:
    """Return the type and the message of an exception as one line of limited length."""
    try:
        text = str(error)
    except BaseException as second:
        text = f"its message raised {type(second).__name__}"
    text = " ".join("".join(c if c.isprintable() else " " for c in text[: 2 * MOST]).split())
    if len(text) > MOST:
        text = f"{text[:MOST]} …"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else f"{kind} without a message{_where(error)}"


def _where(error: BaseException) -> str:
    """Return the line of code that raised an exception, which stands in for a message."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    line = " ".join((last.line or "").split())[:MOST]
    where = f" at line {last.lineno} of {os.path.basename(last.filename)}"
    return f"{where} (`{line}`)" if line else where
