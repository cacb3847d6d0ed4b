"""The command line: `trellis COMMAND`, its errors and its exit codes.

| code | meaning |
|---|---|
| 0 | success |
| 1 | the command failed while it ran |
| 2 | the command line, a file or a run folder is not valid |
| 3 | another process uses the run folder (`RunLockedError`) |
| 4 | the folder for a new run already holds a run (`RunExistsError`) |
| 128 + n | stopped by signal n: 129 SIGHUP, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM |

Results go to standard output, everything else to standard error. An error is one message that says
what to do next; `--debug` adds the traceback. Heavy packages (JAX, MuJoCo, matplotlib) load inside
the commands that need them, so `trellis --help` is quick.
"""

import os
import select
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import trellis
from trellis.cli import options
from trellis.cli.errors import say
from trellis.cli.export import export
from trellis.cli.improvement import improvement
from trellis.cli.inventory import doctor, environments, list_presets
from trellis.cli.publish import pretrained, share
from trellis.cli.report import report
from trellis.cli.reproduce import reproduce
from trellis.cli.runs import compare, evaluate, plot, record
from trellis.cli.train import resume, train
from trellis.cli.tune import tune

COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "record": record,
    "plot": plot,
    "compare": compare,
    "improvement": improvement,
    "report": report,
    "export": export,
    "share": share,
    "pretrained": pretrained,
    "tune": tune,
    "reproduce": reproduce,
    "envs": environments,
    "presets": list_presets,
    "doctor": doctor,
}
READ_THEIR_OWN = (train, reproduce)
"""Commands that parse their own arguments, because their options depend on the first ones."""
SIGNALLED = 128
"""Exit codes above this number name a signal, as in shells."""
CLOSED_PIPE = SIGNALLED + 13
"""Exit code after SIGPIPE, as in `trellis envs | head`."""


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
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            name, *rest = args
            function = options.find_entry(COMMANDS, name, "command", "trellis")
            if function in READ_THEIR_OWN:
                code = function(rest)
            else:
                code = options.read(function, f"trellis {name}", rest)
            if sys.stdout is not None:
                sys.stdout.flush()  # Here, so that a closed pipe has its exit code.
            return code
        except SystemExit as done:
            return done.code if isinstance(done.code, int) else 1
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, BrokenPipeError) and _discard_closed_output():
                return CLOSED_PIPE
            if debug:
                traceback.print_exc()
            return _explain(error, debug, args)


def _explain(error: BaseException, debug: bool, args: Sequence[str]) -> int:
    """Print one message and return the exit code."""
    inner = getattr(error, "error", None)  # An environment raised KeyboardInterrupt.
    if isinstance(inner, Exception):
        error = inner
    if isinstance(error, KeyboardInterrupt):
        say("\n".join([str(error) or "Stopped.", *getattr(error, "__notes__", ())]))
        return SIGNALLED + int(getattr(error, "received", 2))
    # Our own errors say what to do. An unexpected error shows at least its type.
    ours = type(error).__module__.startswith("trellis.")
    text = _with_command(error, args) if hasattr(error, "module_here") else str(error)
    say(f"trellis: {text}" if ours else f"trellis: {type(error).__name__}: {text}")
    for note in getattr(error, "__notes__", ()):
        say(note)
    if not ours and not debug:
        say("Run the same command with --debug to see the traceback.")
    return getattr(error, "exit_code", 1)


def _with_command(error: Any, args: Sequence[str]) -> str:
    """Return the message of a `ConsentError` with the command that gives consent."""
    more = ["--import", error.module_here] if error.module_here else ["--trust-env"]
    return f"{error.reason} If you trust it: {shlex.join(['trellis', *args, *more])}"


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, UserWarning):
        say(f"warning: {message}")


def _discard_closed_output() -> bool:
    """Return whether nobody reads standard output any more; if so, discard the rest of it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # It is no file.
        return False
    watch = select.poll()
    watch.register(descriptor, 0)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0)):
        return False
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
    return True


def _overview() -> str:
    return "\n".join(
        [
            "usage: trellis COMMAND [options]",
            "",
            "Train and evaluate policies with Trust Region Policy Optimization (TRPO).",
            "",
            *options.summaries({k: v.__doc__ or "" for k, v in COMMANDS.items()}),
            "",
            "  trellis COMMAND --help   Show all options of a command.",
            "  --debug                  Show the traceback of an error.",
            "  --version                Show the version.",
        ]
    )
