"""Closes an environment within a time limit.

An environment's `close` may wait for a server, a window or a thread that never answers. It runs in
the thread that called it, because many simulators refuse another one. When the time is up, a signal
raises an exception inside it. Python delivers signals to the main thread only, so `close` has no
time limit in other threads.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

CLOSE_SECONDS = 3.0
"""Time limit for closing all environments of a batch."""
LATER_SECONDS = 0.1
"""Time limit for each environment after one with the same id did not close in time."""
AGAIN_SECONDS = 0.5
"""Time between interrupts of a `close` that catches them."""
INTERRUPTS = 3
"""Number of interrupts after which `close` counts as not interruptible."""
on_hang: Callable[[str], None] | None = None
"""Function that is called in another thread, with a name, if `close` ignores interrupts."""
# A signal that nobody else uses: the last real-time signal where the system has them.
_NUMBER: int = getattr(signal, "SIGRTMAX", 0) or getattr(signal, "SIGVTALRM", 0)


class CloseTimeout(BaseException):
    """The time for `close` is up. It is not an `Exception`, so few environments catch it."""


def close_within(close: Callable[[], None], seconds: float, name: str) -> bool:
    """Call `close`, interrupt it when its time is up, and return whether it finished.

    Args:
        close: Function to call.
        seconds: Time limit.
        name: Name of the environment, for messages.
    """
    main = threading.main_thread().ident
    if threading.get_ident() != main or not _NUMBER:
        close()
        return True
    ended = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> None:
        if not ended.is_set():
            raise CloseTimeout

    old = signal.signal(_NUMBER, interrupt)
    watch = threading.Thread(target=_watch, args=(ended, main, seconds, name), daemon=True)
    watch.start()
    try:
        close()
        ended.set()
    except CloseTimeout:
        return False
    finally:
        ended.set()
        watch.join()
        signal.signal(_NUMBER, signal.SIG_DFL if old is None else old)
    return True


def _watch(ended: threading.Event, thread: int, seconds: float, name: str) -> None:
    """Interrupt a thread when its time is up, and again if it continues."""
    for limit in (seconds, *[AGAIN_SECONDS] * (INTERRUPTS - 1)):
        if ended.wait(limit):
            return
        signal.pthread_kill(thread, _NUMBER)
    if not ended.wait(AGAIN_SECONDS) and on_hang is not None:
        on_hang(name)
