"""Progress of a sweep and its time left, from the logs of its runs.

The remaining work is the simulator steps of the unfinished runs. The pace is the steps of all runs
since the sweep started, divided by the time.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from trellis.reproduce.run_plan import RunPlan


class SweepProgress:
    """Progress of the runs that were unfinished when the sweep started."""

    def __init__(self, runs: Sequence[RunPlan], clock: Callable[[], float] = time.monotonic):
        self._runs, self._clock = runs, clock
        self._start = clock()
        self._at_start = [run.progress for run in runs]
        self._ended: list[RunPlan] = []

    def ended(self, run: RunPlan) -> None:
        """Count a run as ended, finished or failed."""
        self._ended.append(run)

    def seconds_left(self) -> float | None:
        """Return the estimated time left, or None before the first step."""
        done = left = 0.0
        for run, start in zip(self._runs, self._at_start, strict=True):
            now = 1.0 if run in self._ended else run.progress
            done += run.config.total_steps * (now - start)
            left += run.config.total_steps * (1 - now)
        return (self._clock() - self._start) * left / done if done > 0 else None

    def line(self) -> str:
        """Return a progress line: the number of ended runs and the time left."""
        seconds = self.seconds_left()
        left = "time left unknown"
        if seconds is not None:
            left = f"{timedelta(seconds=round(seconds))} left"
        return f"{len(self._ended)}/{len(self._runs)} runs, {left}"
