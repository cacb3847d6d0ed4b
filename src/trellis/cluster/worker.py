"""What runs in the process of a worker: the shards of one node of the reduction tree.

Heavy modules are loaded by `build`, after the environment variables are set: XLA chooses its
threads when it first computes, and with another number of threads sums may come in another order.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle


class ShardError(RuntimeError):
    """Something failed inside a shard; the message says what, in which shard, and where."""


class Worker:
    """The body of a Ray actor: it builds what it holds, then applies functions to it."""

    def __init__(self, environment: Mapping[str, str], span: tuple[int, int]):
        os.environ.update(environment)
        self._span = span
        self._held: Any = None

    def pid(self) -> int:
        """Return the process id; also the sign that there is a process."""
        return os.getpid()

    def build(self, make: bytes) -> None:
        """Build what this worker holds, by a pickled function of its span."""
        self._held = self._try(lambda: cloudpickle.loads(make)(self._span))

    def apply(self, call: bytes) -> Any:
        """Apply a pickled function to what this worker holds."""
        return self._try(lambda: cloudpickle.loads(call)(self._held))

    def _try(self, function: Callable[[], Any]) -> Any:
        """Send errors as text: not every exception can be pickled."""
        try:
            return function()
        except Exception as error:
            first, last = self._span
            which = f"shard {first}" if last == first + 1 else f"shards {first} to {last - 1}"
            raise ShardError(
                f"{which} on {socket.gethostname()}: {type(error).__name__}: {error}"
            ) from error
