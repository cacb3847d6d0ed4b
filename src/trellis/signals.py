"""Signals that stop a run: Ctrl-C (SIGINT), SIGTERM, and SIGHUP of a terminal that closes.

While a run trains, the first signal lets the iteration finish, and a checkpoint is written. A
second one stops at once. Elsewhere a signal raises `StoppedAtOnce`, so that worker processes and
clusters are closed on the way out.
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
"""Handlers that nobody may replace for now, by the number of their signal."""


class StoppedAtOnce(KeyboardInterrupt):
    """A signal stopped the program without waiting for the end of an iteration.

    Attributes:
        received: The signal.
    """

    def __init__(self, received: int):
        self.received = signal.Signals(received)
        super().__init__(f"stopped by {self.received.name}")


def keep_handlers(handlers: Mapping[int, Callable[..., Any]]) -> None:
    """Set handlers that `restore_handlers` sets again; an empty mapping ends this."""
    _kept.clear()
    _kept.update(handlers)
    restore_handlers()


def restore_handlers() -> None:
    """Set the handlers of `keep_handlers` again, where somebody has replaced them."""
    for number, handler in _kept.items():
        if signal.getsignal(number) is not handler:
            if threading.current_thread() is not threading.main_thread():
                return  # Python sets handlers in the main thread alone.
            signal.signal(number, handler)


class StopSignals:
    """The signals that a run has received."""

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        """The signals so far; the run stops after its iteration if there is one."""

    def check(self) -> bool:
        """Return whether to stop. Handlers that an environment has replaced are set again."""
        restore_handlers()
        return bool(self.received)


@contextlib.contextmanager
def stop_signals(*, quiet: bool = False) -> Iterator[StopSignals]:
    """Yield the signals that arrive from now on; signals that are ignored stay ignored."""
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
    """Raise `StoppedAtOnce` where a signal arrives, so that everything is closed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        raise StoppedAtOnce(number)

    with _set_handlers(stop):
        yield


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Deliver signals at the end of the block: what it does is done whole.

    Processes that the block starts never receive SIGINT and SIGHUP, which a terminal sends to all
    of them; they end as their parent wants it.
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
    """Return the handlers of signals that are not ignored, as nohup and background jobs do."""
    found = {number: signal.getsignal(number) for number in STOPPING}
    return {
        number: signal.SIG_DFL if handler is None else handler
        for number, handler in found.items()
        if handler is not signal.SIG_IGN
    }
