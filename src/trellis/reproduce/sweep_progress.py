"""How far a sweep is and how long it will take, from the logs that its runs write.

The work left is in simulator steps: those that a run's settings allow it, less what it has done.
The pace is that of this sweep since it began, all runs side by side taken together.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol


class Run(Protocol):
    """What is asked of a run."""

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        ...

    @property
    def weight(self) -> float:
        """The work of all of it."""
        ...


class SweepProgress:
    """The runs that were not finished when it was made."""

    def __init__(self, runs: Sequence[Run], clock: Callable[[], float] = time.monotonic):
        self._runs, self._clock = list(runs), clock
        self._start = clock()
        self._at_start = [run.progress for run in runs]
        self._ended: set[int] = set()

    def ended(self, run: Run) -> None:
        """This one is over, finished or failed."""
        self._ended.update(i for i, other in enumerate(self._runs) if other is run)

    def seconds_left(self) -> float | None:
        """None until there is a pace."""
        now = [
            1.0 if index in self._ended else run.progress for index, run in enumerate(self._runs)
        ]
        work = [run.weight for run in self._runs]
        done = sum(w * (n - s) for w, n, s in zip(work, now, self._at_start, strict=True))
        left = sum(w * (1 - n) for w, n in zip(work, now, strict=True))
        if done <= 0:
            return None
        return (self._clock() - self._start) * left / done

    def line(self) -> str:
        """So many of so many, and the time left."""
        seconds = self.seconds_left()
        left = "time left unknown" if seconds is None else f"{_duration(seconds)} left"
        return f"{len(self._ended)}/{len(self._runs)} runs, {left}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
