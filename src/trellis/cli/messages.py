"""Talking to the person at the command line: words beside the results, and whose fault it was."""

import contextlib
import sys
from collections.abc import Iterator


class UsageError(Exception):
    """What was asked for cannot be; the message says what can."""


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Until work begins, whatever does not fit is about what was asked for."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        raise UsageError(str(error)) from error


@contextlib.contextmanager
def running() -> Iterator[None]:
    """A run that never began is about what was asked for, too; what stops it later has a note."""
    from trellis.runs.folder import RunFolderError

    try:
        yield
    except (RunFolderError, ValueError, TypeError, ImportError) as error:
        if getattr(error, "__notes__", None):
            raise
        raise UsageError(str(error)) from error


def say(text: str) -> None:
    """To the person, beside the results; who may have gone away, which is no reason to stop."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
