"""Entry point of `trellis` and of `python -m trellis`: runs one command, then ends the process.

Signal handlers are set before anything heavy is imported, so Ctrl-C never shows a traceback.
Threads and forks that an environment leaves behind do not keep the process alive.
"""

import os
import sys

if __name__ == "__main__":
    # Python puts the current folder first on the import path. Commands search it only if their
    # arguments name a module, and never before installed packages.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.abspath(sys.path[0]) == os.getcwd() != home:
        del sys.path[0]

import contextlib

from trellis import closing
from trellis.signals import StoppedAtOnce, raised_signals


def main() -> int:
    """Run the command in `sys.argv` and return its exit code."""
    try:
        with raised_signals():
            from trellis.cli.leaving import end_without_closing, leave
            from trellis.cli.main import main as run_command

            closing.on_hang = end_without_closing
            code = run_command()
    except StoppedAtOnce as stopped:  # Before the command started, or after it ended.
        with contextlib.suppress(OSError, ValueError):
            print(stopped, file=sys.stderr, flush=True)
        return 128 + stopped.received
    leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
