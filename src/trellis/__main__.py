"""`trellis`, and `python -m trellis`: one command, and an orderly end of the process.

Handlers for signals are set before anything heavy is imported, so that Ctrl-C never shows a
traceback. An environment may have left threads or processes behind: they do not outlive a command.
"""

import contextlib
import sys

from trellis import closing
from trellis.signals import StoppedAtOnce, raised_signals


def main() -> int:
    """Run the command in `sys.argv`; return its exit code once nothing keeps the process alive."""
    try:
        with raised_signals():
            from trellis.cli.leaving import end_without_closing, leave
            from trellis.cli.main import main as run_command

            closing.on_hang = end_without_closing
            code = run_command()
    except StoppedAtOnce as stopped:  # While the command was being imported, or had ended.
        with contextlib.suppress(OSError, ValueError):
            print(stopped, file=sys.stderr, flush=True)
        return 128 + stopped.received
    leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
