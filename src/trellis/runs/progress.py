"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere.

One interface, three makings: `Progress` itself shows nothing, `BarProgress` draws with rich,
`LineProgress` prints a line every few seconds and the last one, for logs and pipes.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

LINE_SECONDS = 5.0
"""Between two plain lines."""


class Progress:
    """Shows nothing; the interface of what shows something. A context manager."""

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Takes the row of an iteration that is over."""

    def close(self) -> None:
        """Shows the last state and lets go of the terminal."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LineProgress(Progress):
    """A plain line every few seconds, and the last."""

    def __init__(
        self,
        total_steps: int,
        begun: tuple[int, int] = (0, 0),
        max_iterations: int | None = None,
        *,
        stream: TextIO | None = None,
        every: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._pace = _Pace(total_steps, begun, max_iterations, clock)
        self._stream = stream or sys.stderr
        self._every, self._clock = every, clock
        self._printed = clock()
        self._pending: dict[str, str] | None = None

    def update(self, metrics: Mapping[str, Any]) -> None:
        self._pending = self._pace.columns(metrics)
        if self._clock() - self._printed >= self._every or "eval_return_mean" in metrics:
            self._print()

    def close(self) -> None:
        self._print()

    def _print(self) -> None:
        if self._pending is None:
            return
        # A name for each, so that a line can be read, and found, without the ones before it.
        words = [f"{name} {value}" for name, value in self._pending.items() if value != "-"]
        with contextlib.suppress(OSError):  # Whoever was reading may be gone.
            print("  ".join(words), file=self._stream, flush=True)
        self._pending, self._printed = None, self._clock()


class BarProgress(Progress):
    """A bar with the same columns, redrawn in place."""

    def __init__(
        self, total_steps: int, begun: tuple[int, int] = (0, 0), max_iterations: int | None = None
    ):
        # Here, so that importing trellis does not pay for drawing.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._pace = _Pace(total_steps, begun, max_iterations, time.monotonic)
        self._bar = RichProgress(
            TextColumn("iteration {task.fields[iteration]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[steps]}"),
            TextColumn("return [bold]{task.fields[return]}"),
            TextColumn("eval [bold]{task.fields[eval]}"),
            TextColumn("KL {task.fields[KL]}"),
            TextColumn("{task.fields[steps/s]} steps/s"),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
            expand=True,
        )
        row: dict[str, Any] = {"iteration": begun[0], "steps": begun[1]}
        columns: dict[str, Any] = {**self._pace.columns(row)}
        self._task = self._bar.add_task("", total=1, **columns)
        self._bar.update(self._task, completed=self._pace.part(row))
        self._bar.start()

    def update(self, metrics: Mapping[str, Any]) -> None:
        columns: dict[str, Any] = {**self._pace.columns(metrics)}
        with contextlib.suppress(OSError):
            self._bar.update(self._task, completed=self._pace.part(metrics), **columns)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._bar.stop()


def make_progress(
    total_steps: int,
    begun: tuple[int, int] = (0, 0),
    max_iterations: int | None = None,
    *,
    quiet: bool = False,
) -> Progress:
    """What suits standard error: a bar on a terminal, lines elsewhere, nothing when quiet. What is
    behind the run already, `begun`, is (iterations, steps)."""
    if quiet:
        return Progress()
    if sys.stderr.isatty():
        return BarProgress(total_steps, begun, max_iterations)
    return LineProgress(total_steps, begun, max_iterations)


class _Pace:
    """Turns metrics into words, with what they do not have: the time that is left.

    The pace is that of this process since its second iteration, because the first compiles."""

    def __init__(
        self,
        total_steps: int,
        begun: tuple[int, int],
        max_iterations: int | None,
        clock: Callable[[], float],
    ):
        self._total, self._begun_steps = total_steps, begun[1]
        self._most_iterations = max_iterations
        self._clock = clock
        self._first: tuple[float, float] | None = None
        self._evaluation = "-"

    def part(self, metrics: Mapping[str, Any]) -> float:
        """Of the run, how much is behind it: by steps or by iterations, whichever ends it first."""
        by_steps = (metrics.get("steps") or 0) / self._total
        by_iterations = (metrics.get("iteration") or 0) / (self._most_iterations or math.inf)
        return min(1.0, max(by_steps, by_iterations))

    def columns(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """The words of each column; "-" for what is not known."""
        steps = int(metrics.get("steps") or 0)
        seconds = self._seconds_left(self.part(metrics)) if steps > self._begun_steps else None
        if metrics.get("eval_return_mean") is not None:
            self._evaluation = _number(metrics["eval_return_mean"])
        return {
            "iteration": str(metrics.get("iteration", "-")),
            "steps": f"{steps:,}/{self._total:,}",
            "return": _number(metrics.get("episode_return_mean")),
            "eval": self._evaluation,
            "KL": _number(metrics.get("kl"), ".2g"),
            "steps/s": _number(metrics.get("steps_per_second"), ",.0f"),
            "left": "-" if seconds is None else _duration(seconds),
        }

    def _seconds_left(self, part: float) -> float | None:
        if self._first is None:
            self._first = (self._clock(), part)
            return None
        start, first_part = self._first
        if part <= first_part:
            return None
        return (1.0 - part) * (self._clock() - start) / (part - first_part)


def _number(value: Any, spec: str = ",.1f") -> str:
    return "-" if value is None or value != value else format(value, spec)


def _duration(seconds: float) -> str:
    seconds = round(seconds)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
