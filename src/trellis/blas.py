"""One thread for small matrix products.

A policy's matrix products beside the simulator take microseconds. A BLAS that spreads them over
threads spends more time waking those up than computing, and takes the cores from the physics: forty
times slower, measured on the paper's hopper. XLA and MuJoCo have thread pools of their own, which
this leaves alone.
"""

import functools
from typing import Any

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """A context in which NumPy's matrix products run on the calling thread alone."""
    return _controller().limit(limits=1, user_api="blas")
