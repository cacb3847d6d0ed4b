"""Limits NumPy's matrix products to one thread while a policy runs beside a simulator.

These products take microseconds. A BLAS that splits them among threads spends more time on waking
the threads than on computing, and it takes cores away from the physics: forty times slower,
measured on the paper's hopper. XLA and MuJoCo have thread pools of their own, which this limit does
not affect.
"""

import functools
from typing import Any

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """Return a context manager in which NumPy's matrix products run on the calling thread.

    Example:
        >>> import numpy as np
        >>> with one_blas_thread():
        ...     product = np.eye(3) @ np.eye(3)
    """
    return _controller().limit(limits=1, user_api="blas")
