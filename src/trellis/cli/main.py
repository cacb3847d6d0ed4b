"""The command line: `trellis COMMAND`, its errors and its exit codes.

| code | meaning |
|---|---|
| 0 | done |
| 1 | something failed on the way |
| 2 | the command line, a file or a run folder is not valid |
| 3 | another process uses the run folder (`RunLockedError`) |
| 4 | the folder for a new run holds a run already (`RunExistsError`) |
| 128 + n | stopped by signal n: 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM |

Results go to standard output, everything else to standard error. An error is one message that says
what to do; `--debug` adds the traceback. Heavy packages (JAX, MuJoCo, matplotlib) load inside the
commands that need them, so `trellis --help` is quick.
"""

import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import trellis
from trellis.cli import options
from trellis.cli.errors import say
from trellis.cli.inventory import doctor, environments, list_presets
from trellis.cli.reproduce import reproduce
from trellis.cli.runs import compare, evaluate, plot, record
from trellis.cli.train import resume, train

COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "record": record,
    "plot": plot,
    "compare": compare,
    "reproduce": reproduce,
    "envs": environments,
    "presets": list_presets,
    "doctor": doctor,
}
READ_THEIR_OWN = (train, reproduce)
"""Commands that take the arguments unread: their options depend on the first ones."""
SIGNALLED = 128
"""Exit codes above this name a signal, as in shells."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
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
            name, *rest = args
            function = options.find_entry(COMMANDS, name, "command", "trellis")
            if function in READ_THEIR_OWN:
                return function(rest)
            return options.read(function, f"trellis {name}", rest)
        except SystemExit as done:
            return done.code if isinstance(done.code, int) else 1
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                traceback.print_exc()
            return _explain(error, debug)


def _explain(error: BaseException, debug: bool) -> int:
    """Print one message and return the exit code."""
    inner = getattr(error, "error", None)  # Of an environment that raised KeyboardInterrupt.
    if isinstance(inner, Exception):
        error = inner
    if isinstance(error, KeyboardInterrupt):
        say("\n".join([str(error) or "stopped", *getattr(error, "__notes__", ())]))
        return SIGNALLED + int(getattr(error, "received", 2))
    # Our own errors say what to do; an unexpected one at least says its kind.
    ours = type(error).__module__.startswith("trellis.")
    say(f"trellis: {error}" if ours else f"trellis: {type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        say(note)
    if not ours and not debug:
        say("The same command with --debug shows where.")
    return getattr(error, "exit_code", 1)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"warning: {message}")


def _overview() -> str:
    return "\n".join(
        [
            "usage: trellis COMMAND [options]",
            "",
            "Trust Region Policy Optimization: train, evaluate, record and plot.",
            "",
            *options.summaries({k: v.__doc__ or "" for k, v in COMMANDS.items()}),
            "",
            "  trellis COMMAND --help   all options of a command",
            "  --debug                  tracebacks, where something fails",
            "  --version",
        ]
    )
