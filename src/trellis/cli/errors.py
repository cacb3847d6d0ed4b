"""Errors and messages of the command line."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

COLORS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences that color text on a terminal."""
USUAL = (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError)
"""Errors that wrong arguments usually cause."""


class UsageError(Exception):
    """The command cannot run with these arguments. The message says what to change."""

    exit_code = 2


@contextlib.contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors into usage errors, unless they belong to a run that has started.

    An error that stops a run carries a note that says how to resume. It is raised unchanged, and so
    is an error with its own exit code, such as `RunLockedError`.

    Args:
        *kinds: Errors to turn. Default: `USUAL`.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, kinds or USUAL):
            raise
        if hasattr(error, "exit_code") or hasattr(error, "__notes__"):
            raise
        if isinstance(error, BrokenPipeError):  # The reader of the output is gone.
            raise
        raise UsageError(_words(error)) from error


def require_writable(folder: Path, option: str = "--out") -> None:
    """Raise unless a command can create the folder that an option names, or write into it."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(
            f"cannot write to {folder}: {nearest} is not a folder that you can write to; choose"
            f" another {option}"
        )


def _words(error: Exception) -> str:
    """Return the message of an error, and for a file what to do next."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; choose another path"
    return str(error) or type(error).__name__


def say(text: str) -> None:
    """Print a message to standard error. A closed terminal is no error."""
    # A file may put control characters into a message; a terminal must not obey them.
    plain = COLORS.sub("", text)
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in plain)
    with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed.
        print(shown, file=sys.stderr, flush=True)
