"""Starts, controls and ends worker processes that run environments.

A worker is a separate program. It is not a fork, because JAX has threads in this process. It is not
a child of `multiprocessing` either, which would import the caller's main module into every worker.
Each worker has its own socket, and all workers share one block of memory.

The parent sends a command: a method of the worker's server, with arguments. The worker answers with
the result or with the exception that the command raised. A worker ends when its socket closes. It
also ends within a second after its parent dies, whatever it is doing. Each worker leads a process
group: the processes that its environments started end with it.
"""

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

import cloudpickle

START_SECONDS = 180.0
"""Time limit for the start of a worker; on a busy machine imports take long."""
CLOSE_SECONDS = 5.0
"""Time limit for the end of a worker."""
END_SECONDS = 0.5
"""Time that a worker has to end by itself after its socket closes."""
WATCH_SECONDS = 0.5
"""Time between two checks whether the worker, or its parent, is alive."""

_PROGRAM = "from trellis.envs.workers import main; main()"
Slot = tuple[subprocess.Popen[bytes], Connection]
"""Process of a worker, and the connection to it."""


class WorkerLostError(RuntimeError):
    """A worker process ended, or did not answer in time.

    Attributes:
        exit_code: Exit code of the process; None if it is still running but does not answer.
    """

    def __init__(self, exit_code: int | None):
        self.exit_code = exit_code
        super().__init__(f"a worker process was lost (exit code {exit_code})")


class WorkerFailedError(RuntimeError):
    """A command raised an exception in a worker process; the message is the worker's traceback.

    Attributes:
        error: The exception, with its cause.
    """

    def __init__(self, error: BaseException, text: str):
        self.error = error
        super().__init__(text)


class Failure(NamedTuple):
    """Answer of a worker whose command raised an exception."""

    pickled: bytes
    """The exception and its cause, pickled."""
    text: str
    """Traceback in the worker."""


class Workers:
    """Group of worker processes, each with a socket, and one block of memory for all.

    Args:
        build: Creates the server of a worker, in its process, from the file descriptor of the
            shared memory and the worker's arguments. It must be importable.
        arguments: The arguments of each worker.
        answer_seconds: Default time limit for an answer.
        environment: Additional environment variables of the workers.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        *,
        answer_seconds: float,
        environment: Mapping[str, str] | None = None,
    ):
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("worker processes need Unix sockets: use Linux, macOS, or WSL on Windows")
        self._build, self._arguments = build, arguments
        self._answer_seconds = answer_seconds
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            **(environment or {}),
        }
        self._memory_fd = _anonymous_file()
        self._slots: dict[int, Slot] = {}
        self._owing: set[int] = set()
        """Workers whose answer has not been received yet."""
        self._lost: set[int] = set()
        self.close = weakref.finalize(self, _release, self._slots, self._memory_fd)
        """Ends all processes and releases the memory."""

    def __len__(self) -> int:
        return len(self._arguments)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [process.pid for process, _ in self._slots.values()]

    def allocate(self, size: int) -> mmap.mmap:
        """Return the shared memory with this many bytes; pages that are never written use none."""
        os.ftruncate(self._memory_fd, size)
        return mmap.mmap(self._memory_fd, size)

    def start(self) -> None:
        """Start all processes; the first answer of each says that its server is ready."""
        for worker in range(len(self)):
            self._start(worker)

    def _start(self, worker: int) -> None:
        ours, theirs = socket.socketpair()
        files = (theirs.fileno(), self._memory_fd)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(str, (*files, os.getpid()))],
                stdin=subprocess.DEVNULL,
                pass_fds=files,
                env=self._environment,
                process_group=0,  # Ctrl-C and a closed terminal reach the parent alone.
            )
        self._slots[worker] = process, Connection(ours.detach())
        self._lost.discard(worker)
        self._post(worker, self._build, self._arguments[worker])

    def send(self, worker: int, command: Callable[..., Any], *arguments: Any) -> None:
        """Send a command to a worker; `receive` must follow, and reports a lost worker.

        If the answer to an earlier command was not received, because of Ctrl-C or an error, it is
        discarded first.

        Args:
            worker: Index of the worker.
            command: A method of the server.
            *arguments: Arguments of the method.
        """
        if worker in self._owing:
            with contextlib.suppress(WorkerFailedError, WorkerLostError):
                self.receive(worker)
        self._post(worker, command, arguments)

    def _post(self, worker: int, command: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        _, connection = self._slot(worker)
        self._owing.add(worker)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send((command, arguments))

    def receive(self, worker: int, seconds: float | None = None) -> Any:
        """Return the answer of a worker.

        Args:
            worker: Index of the worker.
            seconds: Time limit; `answer_seconds` by default.

        Raises:
            WorkerFailedError: The command raised an exception.
            WorkerLostError: The process ended, or did not answer in time. It must be replaced.
        """
        process, connection = self._slot(worker)
        answer = None
        try:
            limit = self._answer_seconds if seconds is None else seconds
            answered = worker not in self._lost and _poll(process, connection, limit)
            if answered:
                answer = connection.recv()
        except (EOFError, ConnectionResetError):
            answered = False
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        self._owing.discard(worker)
        if not answered:
            self._lost.add(worker)
            raise WorkerLostError(process.poll())
        if isinstance(answer, Failure):
            error, error.__cause__ = cloudpickle.loads(answer.pickled)
            raise WorkerFailedError(error, answer.text)
        return answer

    def replace(self, worker: int) -> int | None:
        """End a worker, start a new one in its place, and return the exit code of the old one."""
        slot = self._slot(worker)
        _end([slot])
        self._start(worker)
        return slot[0].returncode

    def _slot(self, worker: int) -> Slot:
        if worker not in self._slots:
            raise RuntimeError("this batch of environments is closed: create a new one")
        return self._slots[worker]


def _release(slots: dict[int, Slot], memory_fd: int) -> None:
    _end(slots.values())
    slots.clear()
    os.close(memory_fd)


def _end(slots: Collection[Slot]) -> None:
    """Close the sockets, which makes workers end, and kill what is left of their groups."""
    for _, connection in slots:
        connection.close()
    deadline = time.monotonic() + END_SECONDS
    for process, _ in slots:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(deadline - time.monotonic(), 0.0))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(CLOSE_SECONDS)


def _poll(process: subprocess.Popen[bytes], connection: Connection, seconds: float) -> bool:
    """Wait for an answer and return whether there is one.

    The function also checks the process, because a fork of it may hold its socket open.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        if connection.poll(min(left, WATCH_SECONDS)):
            return True
        if left <= WATCH_SECONDS or process.poll() is not None:
            return connection.poll(0)


def _anonymous_file() -> int:
    """Return a file without a name, in memory if possible; it vanishes with its last user."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trellis")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _portable(error: BaseException | None) -> BaseException | None:
    """Return the exception itself if it can be pickled, else an exception with its text."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except BaseException:
        return RuntimeError("".join(traceback.format_exception_only(error)).strip())
    return error


def main() -> None:
    """Run a worker: build its server, then answer commands until the parent closes the socket."""
    # The parent decides when its workers end, even if someone signals all of its processes.
    for name in ("SIGINT", "SIGHUP", "SIGTTOU"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Processes of an environment would inherit SIG_IGN, so SIGTERM gets an empty handler.
    signal.signal(signal.SIGTERM, lambda *_: None)
    socket_fd, memory_fd, parent = (int(argument) for argument in sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    connection = Connection(socket_fd)
    os.set_inheritable(socket_fd, False)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection, memory_fd)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)  # Threads of an environment would keep the process alive.


def _serve(connection: Connection, memory_fd: int) -> NoReturn:
    """Answer commands until the socket closes; the first command builds the server."""
    server, me = None, os.getpid()
    while True:
        command, arguments = connection.recv()
        try:
            if server is None:
                server, answer = command(memory_fd, *arguments), None
            else:
                answer = command(server, *arguments)
        except BaseException as error:
            pickled = cloudpickle.dumps((_portable(error), _portable(error.__cause__)))
            answer = Failure(pickled, "".join(traceback.format_exception(error)))
        if os.getpid() != me:  # This is a fork that returned: only its parent answers.
            os._exit(1)
        connection.send(answer)


def _end_with(parent: int) -> NoReturn:
    """End this process and its group when the parent dies."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.killpg(0, signal.SIGKILL)
    os._exit(1)
