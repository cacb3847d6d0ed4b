"""The command line: `trellis COMMAND`, its errors and its exit codes.

0 done, 1 something failed on the way, 2 asked for what cannot be, 130 stopped by Ctrl-C. Every
error is one message on standard error that says what to do; `--debug` adds the traceback.
"""

import difflib
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tyro

import trellis
from trellis.cli import options as option_values
from trellis.cli.commands import COMMANDS, train
from trellis.cli.messages import UsageError, say

INTERRUPTED = 130
"""As shells have it: 128 and the number of the signal."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        return 0 if args else 2
    if args[0] == "--version":
        print(f"trellis {trellis.__version__}")
        return 0
    # `module:Id-v0` may be in the current folder, as for `python -m`; what is installed goes first.
    if "" not in sys.path:
        sys.path.append("")
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            return _command(args[0])(args[1:])
        except SystemExit as done:
            return done.code if isinstance(done.code, int) else 1
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            return _explain(error, debug)


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no command {name!r}.{hint} `trellis --help` lists them.")
    if name == "train":
        return train
    function = COMMANDS[name]
    registry = option_values.registry()
    return lambda args: tyro.cli(
        function, prog=f"trellis {name}", args=list(args), registry=registry
    )


def _explain(error: BaseException, debug: bool) -> int:
    """One message on standard error; the exit code."""
    if isinstance(error, KeyboardInterrupt):
        say(str(error) or "stopped")
        received = getattr(error, "received", None)
        return INTERRUPTED if received is None else 128 + int(received)
    if isinstance(error, UsageError):
        say(f"trellis: {error}")
        return 2
    # Our own errors say what to do; what nobody foresaw at least says its kind.
    ours = type(error).__module__.startswith("trellis.")
    say(f"trellis: {error}" if ours else f"trellis: {type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        say(note)
    if not ours and not debug:
        say("The same command with --debug shows where.")
    return 1


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"warning: {message}")


def _overview() -> str:
    lines = [
        "usage: trellis COMMAND [options]",
        "",
        "Trust Region Policy Optimization: train, evaluate, film and draw.",
        "",
    ]
    for name, function in COMMANDS.items():
        lines.append(f"  {name:<11}{(function.__doc__ or '').splitlines()[0]}")
    lines += [
        "",
        "  trellis COMMAND --help   all options of a command",
        "  --debug                  tracebacks, where something fails",
        "  --version",
    ]
    return "\n".join(lines)
