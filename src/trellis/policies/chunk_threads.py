"""Applies a function to chunks of data in several threads and returns the results in order.

Results do not depend on the number of threads, because every chunk is computed by one thread and
the caller combines the results in the order of the chunks.
"""

import collections
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

from trellis.blas import one_blas_thread

Result = TypeVar("Result")

AHEAD = 4
"""Number of chunks per thread that may be computed before their results are used."""


def in_threads(function: Callable[..., Result], *chunks: Iterable[Any]) -> Iterator[Result]:
    """Yield the results of `function` for all chunks, in order.

    Args:
        function: Function of one chunk. It must release Python's lock for most of its time.
        *chunks: Arguments of the function, chunk by chunk.
    """
    double = bool(jax.config.read("jax_enable_x64"))

    def call(*chunk: Any) -> Result:
        # Threads do not inherit a precision that was set for a block of code.
        own = double == bool(jax.config.read("jax_enable_x64"))
        with contextlib.nullcontext() if own else jax.enable_x64(double):
            return function(*chunk)

    count = _num_threads()
    with one_blas_thread():
        if count == 1:
            yield from map(call, *chunks)
            return
        with ThreadPoolExecutor(count, thread_name_prefix="trellis-chunks") as pool:
            pending: collections.deque[Any] = collections.deque()
            for chunk in zip(*chunks, strict=True):
                pending.append(pool.submit(call, *chunk))
                if len(pending) > AHEAD * count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()


def _num_threads() -> int:
    """Return the number of threads that XLA would use: `NPROC`, or one per core."""
    wanted = os.environ.get("NPROC", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
