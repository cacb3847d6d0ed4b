"""What runs in the process of a worker: the shards of one node of the tree.

What is heavy is loaded by `build`, after the environment is set: XLA settles its threads when it
first computes, and with another number of threads sums may come in another order.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ShardError(RuntimeError):
    """Something failed inside a shard; the message says what, in which, and where."""


class Worker:
    """The body of an actor. A team is built first, then asked."""

    def __init__(self, environment: Mapping[str, str], span: tuple[int, int]):
        os.environ.update(environment)
        self._span = span
        self._team: Any = None

    def pid(self) -> int:
        """The process; also the sign that there is one."""
        return os.getpid()

    def build(self, config: Any, make_env: Any, policy: Any) -> None:
        """Makes the shards."""
        from trellis.training.team import LocalTeam

        self._team = self._try(LocalTeam, config, make_env, policy, self._span)

    def stand(self, standings: Sequence[Any]) -> None:
        """Puts the shards where they stood."""
        self._try(self._team.stand, standings)

    def ask(self, question: str, *arguments: Any) -> Any:
        """One answer for all shards here."""
        return self._try(self._team.ask, question, *arguments)

    def _try(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Errors travel as words: not every exception can be sent."""
        try:
            return function(*arguments)
        except Exception as error:
            first, last = self._span
            which = f"shard {first}" if last == first + 1 else f"shards {first} to {last - 1}"
            raise ShardError(
                f"{which} on {socket.gethostname()}: {type(error).__name__}: {error}"
            ) from error
