"""Progress of a sweep and the time left, from the logs that its runs write.

The work left is the simulator steps that the runs may still take. The pace is that of all runs of
this sweep together, since it started.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from trellis.reproduce.run_plan import RunPlan


class SweepProgress:
    """Progress of the runs that were not finished at the start."""

    def __init__(self, runs: Sequence[RunPlan], clock: Callable[[], float] = time.monotonic):
        self._runs, self._clock = runs, clock
        self._start = clock()
        self._at_start = [run.progress for run in runs]
        self._ended: list[RunPlan] = []

    def ended(self, run: RunPlan) -> None:
        """Count a run as over, finished or failed."""
        self._ended.append(run)

    def seconds_left(self) -> float | None:
        """Return the estimated time left; None until there is a pace."""
        done = left = 0.0
        for run, start in zip(self._runs, self._at_start, strict=True):
            now = 1.0 if run in self._ended else run.progress
            done += run.config.total_steps * (now - start)
            left += run.config.total_steps * (1 - now)
        return (self._clock() - self._start) * left / done if done > 0 else None

    def line(self) -> str:
        """Return how many runs have ended, and the time left."""
        seconds = self.seconds_left()
        left = "time left unknown"
        if seconds is not None:
            left = f"{timedelta(seconds=round(seconds))} left"
        return f"{len(self._ended)}/{len(self._runs)} runs, {left}"
