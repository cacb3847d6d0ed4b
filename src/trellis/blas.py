"""Limits NumPy's matrix products to one thread while a policy runs beside a simulator.

These products take microseconds. A BLAS that splits them among threads spends more time on waking
the threads than on computing, and it takes cores away from the physics: forty times slower,
measured on the paper's hopper. XLA and MuJoCo have thread pools of their own, which this limit does
not affect.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _Limit:
    """Limit of one BLAS thread while at least one holder needs it.

    The limit applies to the whole process. If each block restored what it had found, a block that
    ends early would lift the limit of the others, and one that ends late could leave it in place
    forever.
    """

    def __init__(self):
        self._lock, self._holders, self._limiter = threading.Lock(), 0, None

    def acquire(self) -> None:
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._limiter = _controller().limit(limits=1, user_api="blas")

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limiter is not None:
                self._limiter.restore_original_limits()


_limit = _Limit()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run NumPy's matrix products on the calling thread in this block.

    Blocks may overlap in several threads.

    Example:
        >>> import numpy as np
        >>> with one_blas_thread():
        ...     product = np.eye(3) @ np.eye(3)
    """
    _limit.acquire()
    try:
        yield
    finally:
        _limit.release()
