"""Worker processes for emulators: started, told what to do, and started again when they die.

They are programs of their own, not forks (JAX has threads in this process) and not children of
`multiprocessing` (which would load the caller's main module into each). A socket goes to each, and
one block of memory to all.
"""

import contextlib
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from typing import Any

from trellis.envs.atari.worker import DONE, MemoryLayout

START_SECONDS = 180.0
CLOSE_SECONDS = 5.0


class WorkerRaisedError(RuntimeError):
    """A worker met an error that is ours, and told its traceback."""


class Processes:
    """Workers, each with the rows between two of the `edges`."""

    def __init__(self, layout: MemoryLayout, edges: list[int]):
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("Atari's emulators need Unix sockets: Linux, macOS, or WSL on Windows")
        self._layout, self._edges = layout, edges
        self._memory_fd = _anonymous_file(layout.size)
        self._close_memory = weakref.finalize(self, os.close, self._memory_fd)
        self.memory = mmap.mmap(self._memory_fd, layout.size)
        self._workers: list[tuple[subprocess.Popen[bytes], socket.socket] | None]
        self._workers = [None] * (len(edges) - 1)
        self._owing: set[int] = set()
        """Workers that have yet to answer."""
        try:
            for worker in range(len(self)):
                self.start(worker)
            for worker in range(len(self)):
                if not self.wait_for(worker, START_SECONDS):
                    raise OSError(f"worker {worker} ended while it was starting; see its message")
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [worker[0].pid for worker in self._workers if worker is not None]

    def start(self, worker: int) -> None:
        """Starts the process of a worker; it says so when it is ready."""
        ours, theirs = socket.socketpair()
        rows = [str(self._edges[worker]), str(self._edges[worker + 1])]
        files = [theirs.fileno(), self._memory_fd]
        # One core each: threads of a BLAS would only take memory.
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "trellis.envs.atari.worker"),
                *(self._layout.to_json(), *rows, *map(str, files)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=files,
            env=variables,
        )
        theirs.close()
        self._workers[worker] = process, ours
        self._owing.add(worker)

    def replace(self, worker: int) -> int | None:
        """Ends what is left of a worker and starts another; the exit code of the old one."""
        code = self._end(worker)
        self.start(worker)
        return code

    def tell(self, worker: int, command: bytes) -> None:
        """Sends a command; whether it arrived shows when the answer is waited for.

        An answer that nobody has waited for, because something was raised meanwhile, comes first.
        """
        if worker in self._owing:
            self.wait_for(worker, START_SECONDS)
        self._owing.add(worker)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._worker(worker)[1].sendall(command)

    def wait_for(self, worker: int, seconds: float) -> bool:
        """Waits for the answer. False: the worker died, or was silent for too long."""
        _, connection = self._worker(worker)
        deadline = time.monotonic() + seconds
        try:
            connection.settimeout(seconds)
            answer = connection.recv(1)
            self._owing.discard(worker)
            if answer in (DONE, b""):
                return answer == DONE
            text = b""
            size = int.from_bytes(_receive(connection, 4), "little")
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            text = _receive(connection, size)
        except (TimeoutError, ConnectionResetError):
            self._owing.discard(worker)
            return False
        raise WorkerRaisedError(text.decode())

    def close(self) -> None:
        """Ends all processes and lets go of the memory."""
        for worker in range(len(self)):
            self._end(worker)
        self._close_memory()

    def _worker(self, worker: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
        pair = self._workers[worker]
        if pair is None:
            raise RuntimeError("this batch was closed; make a new one")
        return pair

    def _end(self, worker: int) -> int | None:
        pair = self._workers[worker]
        if pair is None:
            return None
        process, connection = pair
        connection.close()  # which is how a worker learns that it may end
        try:
            process.wait(0.0 if process.poll() is not None else 0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(CLOSE_SECONDS)
        self._workers[worker] = None
        return process.returncode


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError
        parts += part
    return parts


def _anonymous_file(size: int) -> int:
    """A file without a name, in memory where the system can: gone with its last user."""
    create: Any = getattr(os, "memfd_create", None)
    if create is not None:
        descriptor = create("trellis-atari")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
