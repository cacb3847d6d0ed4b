"""Ends the processes of a local Ray if the process that started it is killed.

Most processes of Ray end with their parent, but its agents can wait forever for a server that is
gone. So the reaper, a small process, records the processes that Ray starts. When the parent dies,
it kills those that are left. It is a script that uses only the standard library and /proc.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

SCAN_SECONDS = 0.5
"""Time between two scans of the processes while Ray starts."""
LATER_SECONDS = 10.0
"""Time between two scans afterwards."""
START_SECONDS = 60.0
"""Time that Ray has to start."""
GRACE_SECONDS = 1.0
"""Time that Ray has to end by itself after its parent dies."""
Identity = tuple[int, str]
"""Process id and start time, which distinguish a process from a later one with the same id."""


def start_reaper(package: str) -> subprocess.Popen[bytes] | None:
    """Start a reaper for this process; return None if the system has no /proc.

    Args:
        package: Folder of Ray's package, which the command lines of its processes contain.
    """
    if not Path("/proc/self/stat").exists():
        return None
    return subprocess.Popen(
        [sys.executable, "-I", __file__, str(os.getpid()), package],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop_reaper(reaper: subprocess.Popen[bytes] | None) -> None:
    """End the reaper after Ray has ended."""
    if reaper is not None:
        reaper.kill()
        reaper.communicate()


def main(parent: int, package: str) -> None:
    """Record the processes that Ray starts; when the parent is gone, kill those that are left."""
    known: set[Identity] = set()
    started = time.monotonic()
    while os.getppid() == parent:
        known |= _ray_processes(parent, package)
        early = time.monotonic() < started + START_SECONDS
        if select.select([0], [], [], SCAN_SECONDS if early else LATER_SECONDS)[0]:
            break
    time.sleep(GRACE_SECONDS)
    for pid, since in known:
        found = _stat(pid)
        if found is not None and found[1] == since:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _ray_processes(parent: int, package: str) -> set[Identity]:
    """Return the children of the parent that belong to Ray, with all their descendants."""
    children: dict[int, list[Identity]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = _stat(int(name))
            if found is not None:
                children.setdefault(found[0], []).append((int(name), found[1]))
    others = [child for child in children.get(parent, ()) if child[0] != os.getpid()]
    left = [child for child in others if package in _command(child[0])]
    ray: set[Identity] = set()
    while left:
        process = left.pop()
        ray.add(process)
        left += children.get(process[0], ())
    return ray


def _stat(pid: int) -> tuple[int, str] | None:
    """Return the parent and the start time of a process; None if it has ended."""
    try:
        # The fields follow the name, which may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[19]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
