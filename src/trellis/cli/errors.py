"""Errors and messages for the person at the command line."""

import contextlib
import re
import sys
from collections.abc import Iterator

COLORS = re.compile(r"\x1b\[[0-9;]*m")
USUAL = (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)


class UsageError(Exception):
    """The command cannot be run as given; the message says what can."""

    exit_code = 2


@contextlib.contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors into usage errors, unless they belong to a run that has started.

    An error that stops a run carries a note that says how to resume. It is raised unchanged, and so
    is an error with an exit code of its own, such as `RunLockedError`.

    Args:
        *kinds: Errors to turn. Default: those that wrong arguments usually cause.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, kinds or USUAL):
            raise
        if hasattr(error, "exit_code") or hasattr(error, "__notes__"):
            raise
        raise UsageError(str(error) or type(error).__name__) from error


def say(text: str) -> None:
    """Print a message to standard error, even if nobody reads it any more."""
    # A file may put control characters into a message; a terminal must not obey them.
    plain = COLORS.sub("", text)
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in plain)
    with contextlib.suppress(OSError):
        print(shown, file=sys.stderr, flush=True)
