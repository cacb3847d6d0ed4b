"""Turn tyro's parse errors, which are boxes of many lines, into one line with the next action.

tyro reports what it rejects to a hook. The hook is not part of tyro's public interface, so this
module uses it only if it is there. Otherwise tyro prints its own box, with the same exit code 2.
"""

import contextlib
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from trellis.cli.errors import UsageError

try:
    from tyro import _errors as events
except ImportError:  # A version of tyro without the hook.
    events: Any = None

MOST_HINTS = 3


def one_line_errors(flags: Callable[[], Sequence[str]]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which tyro's parse errors are raised as `UsageError`.

    Args:
        flags: Returns all options of the command, to suggest the one that was meant.
    """
    if events is None:
        return contextlib.nullcontext()

    def explain(event: Any) -> None:
        message = _message(event, flags)
        if message is not None:
            raise UsageError(message)

    return events.on_parse_error(explain)


def _message(event: Any, flags: Callable[[], Sequence[str]]) -> str | None:
    """Return one line for an event; None for an event that is not known here."""
    more = f"`{event.prog} --help` lists all options."
    if isinstance(event, events.UnrecognizedArgs):
        return f"{_unknown(event.tokens, flags())} {more}"
    if isinstance(event, events.MissingArgs):
        names = ", ".join(_name(missing.arg) for missing in event.missing_arguments)
        return f"missing argument: {names}. {more}"
    if isinstance(event, events.InvalidChoice):
        choices = ", ".join(event.choices)
        return f"{_name(event.argument)} must be one of {choices}, got {event.value!r}"
    if isinstance(event, events.BadValue):
        return f"{_name(event.argument)} needs a value: {event.argument.lowered.metavar}. {more}"
    if isinstance(event, events.InstantiationFailure):
        name = "" if event.argument is None else f"{_name(event.argument)} "
        return f"{name}{event.message}"
    return None


def _name(argument: Any) -> str:
    """Return an argument as people type it: its first flag, or the placeholder of a position."""
    lowered = argument.lowered
    return lowered.metavar if argument.is_positional() else lowered.name_or_flags[0]


def _unknown(tokens: Sequence[str], flags: Sequence[str]) -> str:
    """Return the words about the first argument that a command does not have."""
    token = next((token for token in tokens if token.startswith("-")), tokens[0])
    if not token.startswith("-"):
        return f"unexpected argument {token!r}."
    option = token.partition("=")[0].replace("_", "-")
    # `--gamma` means `--estimation.gamma`: the group may be missing.
    ends = [flag for flag in flags if flag.endswith(f".{option.lstrip('-')}")]
    near = ends or difflib.get_close_matches(option, flags, n=1)
    hint = f" Did you mean {' or '.join(near[:MOST_HINTS])}?" if near else ""
    return f"unknown option {option}.{hint}"
