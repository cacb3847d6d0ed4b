"""Implements the process of a worker, which holds the shards of one node of the reduction tree.

`build` imports heavy modules, after the environment variables are set. XLA chooses its number of
threads when it first computes, and the order of sums depends on that number.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle


class ShardError(RuntimeError):
    """A call failed inside a shard; the message names the shard, the machine and the error."""


class Worker:
    """Body of a Ray actor: it builds an object, then applies functions to it.

    Args:
        environment: Environment variables to set before anything is imported.
        span: Range of shards that this worker holds.
    """

    def __init__(self, environment: Mapping[str, str], span: tuple[int, int]):
        os.environ.update(environment)
        self._span = span
        self._held: Any = None

    def pid(self) -> int:
        """Return the process id; an answer shows that the process runs."""
        return os.getpid()

    def build(self, make: bytes) -> None:
        """Build the object that this worker holds, by a pickled function of its span."""
        self._held = self._try(lambda: cloudpickle.loads(make)(self._span))

    def apply(self, call: bytes) -> Any:
        """Apply a pickled function to the object and return its answer."""
        return self._try(lambda: cloudpickle.loads(call)(self._held))

    def _try(self, function: Callable[[], Any]) -> Any:
        """Call a function and raise its errors as text, because not all of them can be pickled."""
        try:
            return function()
        except Exception as error:
            first, last = self._span
            which = f"shard {first}" if last == first + 1 else f"shards {first} to {last - 1}"
            raise ShardError(
                f"{which} on {socket.gethostname()}: {type(error).__name__}: {error}"
            ) from error
