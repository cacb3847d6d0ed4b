"""What travels between the driver and its workers in an iteration, counted where it is sent."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.training.reduction import Span


@dataclass
class Travelled:
    """To and from one worker in one iteration, in bytes of array data."""

    sent: int = 0
    received: int = 0
    snapshots: int = 0
    """Part of what was received: where the environments stood, for the case of a loss."""


class Traffic:
    """By worker, for the iteration that began last."""

    def __init__(self):
        self.workers: dict[Span, Travelled] = {}

    def begin(self) -> None:
        """A new iteration."""
        self.workers = {}

    def count(self, span: Span, arguments: Any, answer: Any) -> None:
        """One question to a worker, and its answer."""
        travelled = self.workers.setdefault(span, Travelled())
        travelled.sent += num_bytes(arguments)
        travelled.received += num_bytes(answer)
        travelled.snapshots += num_bytes(getattr(answer, "standings", None))


def num_bytes(value: Any) -> int:
    """Of all arrays and numbers in a message."""
    if isinstance(value, np.ndarray | np.generic):
        return value.nbytes
    if isinstance(value, int | float):
        return 8
    if isinstance(value, Mapping):
        return sum(map(num_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(num_bytes, value))
    if dataclasses.is_dataclass(value):
        return sum(num_bytes(getattr(value, part.name)) for part in dataclasses.fields(value))
    return 0
