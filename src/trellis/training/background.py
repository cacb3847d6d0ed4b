"""Runs a function in a thread while the caller does something else.

The critic fit and the trust-region step need the same estimates, but not each other. Both are
compiled programs that use one core for the most part, so they run side by side.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    """A call that runs in a thread of its own from now on.

    Args:
        call: The function.

    Example:
        >>> background = Background(lambda: 6 * 7)
        >>> background.result()
        42
    """

    def __init__(self, call: Callable[[], Result]):
        self._call = call
        self._results: list[Result] = []
        self._failure: BaseException | None = None
        # The context holds how NumPy treats overflow, among others.
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._run,))
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as failure:  # Raised by `result`, in the caller's thread.
            self._failure = failure

    def result(self) -> Result:
        """Wait for the end of the call and return its result, or raise its exception."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._results[0]
