"""Ends the process, even if an environment left threads or processes behind.

At exit, Python waits for every thread that is not a daemon and runs all `atexit` functions. Both
may never end. So a daemon thread ends the process when a time limit is over.
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
"""Time limit for the threads of an environment to end after the command."""


def leave(code: int) -> None:
    """Kill forks of this process, and make it end with this code within seconds."""
    flush()
    for pid in _forks():
        say(f"warning: an environment left process {pid}, a fork of this one; it was killed.")
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    threading.Thread(target=_end, args=(code,), daemon=True, name="trellis-leave").start()


def end_without_closing(name: str) -> None:
    """End the process, because `close` of an environment cannot be interrupted."""
    say(f"trellis: {name}: close hangs and cannot be interrupted; ending the process.")
    flush()
    os._exit(1)


def flush() -> None:
    """Flush standard output and standard error; replace a stream that cannot be written."""
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
    left = f"threads ({', '.join(sorted(names))})" if names else "atexit functions"
    say(f"warning: an environment left {left} that do not end; ending the process.")
    flush()
    os._exit(code)


def _forks() -> list[int]:
    """Return the children with the command line of this process, which are its forks."""
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
