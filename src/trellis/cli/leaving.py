"""The end of the process: nothing that an environment has left behind may keep it alive.

Python waits at its end for every thread that is not a daemon, and runs what was registered with
`atexit`. Both may take for ever. So a thread of our own ends the process when its time is up.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from trellis.cli.errors import say

LEAVE_SECONDS = 2.0
"""Time for the threads of an environment to end after the command has."""


def leave(code: int) -> None:
    """End forks of this process, and make it end with this code within seconds."""
    flush()
    for pid in _forks():
        say(f"An environment has left the process {pid}, a fork of this one; it was ended.")
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    threading.Thread(target=_end, args=(code,), daemon=True, name="trellis-leave").start()


def end_without_closing(name: str) -> None:
    """End the process, because an environment cannot be closed even by force."""
    say(f"trellis: {name}: close hangs and cannot be interrupted; the process ends without it.")
    flush()
    os._exit(1)


def flush() -> None:
    """Write what was printed; a stream that nobody reads any more is given up."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (OSError, ValueError, AttributeError):
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open until the end)


def _end(code: int) -> None:
    time.sleep(LEAVE_SECONDS)
    names = {
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    }
    left = f"threads ({', '.join(sorted(names))})" if names else "functions for the exit"
    say(f"An environment has left {left} that do not end; the process ends without them.")
    flush()
    os._exit(code)


def _forks() -> list[int]:
    """Return the children that are forks of this process: they have its command line."""
    with contextlib.suppress(OSError):
        mine = Path("/proc/self/cmdline").read_bytes()
        children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
        pids = [int(pid) for part in children for pid in part]
        return [pid for pid in pids if _command_of(pid) == mine]
    return []


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
