"""Handles signals that stop a run: Ctrl-C (SIGINT), SIGTERM, and SIGHUP of a closed terminal.

After the first signal, a run finishes its iteration and writes a checkpoint. A second signal stops
it at once. Outside of training, a signal raises `StoppedAtOnce`, so that worker processes and
clusters are closed.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

STOPPING = tuple(
    signal.Signals(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)
"""Signals that stop a run, where the system has them."""
_kept: dict[int, Callable[..., Any]] = {}
"""Handlers that `restore_handlers` sets again, by the number of their signal."""


class StoppedAtOnce(KeyboardInterrupt):
    """A signal stopped the program without waiting for the end of an iteration.

    Attributes:
        received: Signal that stopped it.
    """

    def __init__(self, received: int):
        self.received = signal.Signals(received)
        super().__init__(f"stopped by {self.received.name}")


def keep_handlers(handlers: Mapping[int, Callable[..., Any]]) -> None:
    """Set handlers and remember them for `restore_handlers`; an empty mapping forgets them."""
    _kept.clear()
    _kept.update(handlers)
    restore_handlers()


def restore_handlers() -> None:
    """Set the handlers of `keep_handlers` again if they were replaced."""
    for number, handler in _kept.items():
        if signal.getsignal(number) is not handler:
            if threading.current_thread() is not threading.main_thread():
                return  # Python sets handlers in the main thread only.
            signal.signal(number, handler)


class StopSignals:
    """Signals that a run has received."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        """Signals so far; after the first one the run stops at the end of its iteration."""

    def check(self) -> bool:
        """Return whether to stop, and set handlers again that an environment replaced."""
        restore_handlers()
        return bool(self.received)


@contextlib.contextmanager
def stop_signals(*, quiet: bool = False) -> Iterator[StopSignals]:
    """Yield the signals that arrive in the block; signals that are ignored stay ignored."""
    signals = StopSignals()
    old: dict[int, Any] = {}

    def restore() -> None:
        keep_handlers({})
        while old:
            signal.signal(*old.popitem())

    def receive(number: int, frame: FrameType | None) -> None:
        if signals.received:
            previous = old.get(number)
            restore()
            if callable(previous) and previous is not signal.default_int_handler:
                previous(number, frame)
                return
            raise StoppedAtOnce(number)
        signals.received.append(signal.Signals(number))
        if not quiet:  # Past Python's buffers, which the interrupted line may be using.
            with contextlib.suppress(OSError):  # The terminal may be closed.
                os.write(2, b"\nStopping after this iteration; again to stop at once.\n")

    if threading.current_thread() is threading.main_thread():  # Only there can they be set.
        old.update(_handlers())
        keep_handlers(dict.fromkeys(old, receive))
    try:
        yield signals
    finally:
        restore()


@contextlib.contextmanager
def raised_signals() -> Iterator[None]:
    """Raise `StoppedAtOnce` when a signal arrives, so that environments and workers are closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        raise StoppedAtOnce(number)

    with _set_handlers(stop):
        yield


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Deliver signals at the end of the block, so that the block is never interrupted.

    Processes that start in the block never receive SIGINT and SIGHUP, which a terminal sends to all
    processes. Their parent ends them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    terminal = [number for number in STOPPING if number != signal.SIGTERM]
    try:
        with _set_handlers(lambda number, _: late.append(number)):
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, terminal)
            try:
                yield
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        for number in late:
            signal.raise_signal(number)


@contextlib.contextmanager
def _set_handlers(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    old = _handlers()
    for number in old:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)


def _handlers() -> dict[int, Any]:
    """Return the handlers of the signals that are not ignored (nohup ignores SIGHUP)."""
    found = {number: signal.getsignal(number) for number in STOPPING}
    return {
        number: signal.SIG_DFL if handler is None else handler
        for number, handler in found.items()
        if handler is not signal.SIG_IGN
    }
