"""Progress of a run: a live bar on a terminal, plain lines in a file or a pipe.

`Progress` shows nothing. `BarProgress` shows a bar of rich. `LineProgress` prints a line after the
first iteration, then every few seconds, and the last one. Slow environments report their steps
within an iteration. rich estimates the time left for both,
from the second iteration on, because the first one compiles.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TextIO

from trellis.config import TrainConfig

LINE_SECONDS = 5.0
"""Time between two plain lines."""
BAR_SECONDS = 1.0
"""Time between two changes of the bar within an iteration."""
COMPILING = "Compiling the first iteration …"
"""First plain line, because the first iteration takes longer than the others."""
WIDTHS = {"iteration": 120, "steps": 100, "kl": 120}
"""Smallest terminal widths in columns at which the bar shows these values."""


class Progress:
    """Progress display that shows nothing, and the interface of the others. A context manager."""

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""

    def add_steps(self, purpose: str, count: int) -> None:
        """Show that a slow environment is making steps, between two iterations.

        Args:
            purpose: What the steps are for: "sampling" or "evaluating".
            count: Number of steps since the last call.
        """

    def close(self) -> None:
        """Show the last metrics and release the terminal."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BarProgress(Progress):
    """A live bar with steps, return, evaluation, KL, speed and time left.

    Args:
        config: Settings of the run, which define its length.
        begun: Iterations and steps that are already done.
        clock: Clock in seconds.
        live: Whether to show the bar.
    """

    def __init__(
        self,
        config: TrainConfig,
        begun: tuple[int, int] = (0, 0),
        *,
        clock: Callable[[], float] = time.monotonic,
        live: bool = True,
    ):
        # Here, so that importing trellis does not load rich.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._total, self._max_iterations = config.total_steps, config.max_iterations or math.inf
        self._evaluation: float | None = None
        self._clock, self._planned = clock, config.sampling.most_steps
        self._steps: dict[str, int] = {}
        """Steps since the last iteration, by what they are for."""
        self._told = clock()
        console = Console(stderr=True)
        metrics: dict[str, Any] = {"iteration": begun[0], "steps": begun[1]}
        values = self._values(metrics, None)
        shown = [name for name in values if console.width >= WIDTHS.get(name, 0)]
        self._rich = RichProgress(
            TextColumn("{task.percentage:>3.0f}%"),
            BarColumn(bar_width=None),
            *(TextColumn(f"{{task.fields[{name}]}}") for name in shown),
            console=console,
            speed_estimate_period=math.inf,
            get_time=clock,
            disable=not live,
            expand=True,
        )
        fraction = self._fraction(metrics)
        if fraction < 1:
            values["left"] = "compiling"
        self._task = self._rich.add_task("", total=1, **values)
        self._rich.update(self._task, completed=fraction)
        self._rich.start()

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""
        self._show(metrics)

    def add_steps(self, purpose: str, count: int) -> None:
        """Show that a slow environment is making steps, at most every few seconds."""
        self._steps[purpose] = self._steps.get(purpose, 0) + count
        if self._clock() - self._told >= self._patience:
            self._told = self._clock()
            planned = f"/{self._planned:,}" if purpose == "sampling" else ""
            self._tell(f"{purpose} {self._steps[purpose]:,}{planned} steps")

    _patience = BAR_SECONDS

    def _tell(self, text: str) -> None:
        """Show what is happening within an iteration."""
        with contextlib.suppress(OSError, ValueError):
            self._rich.update(self._task, left=text)

    def close(self) -> None:
        """Show the last metrics and release the terminal."""
        with contextlib.suppress(OSError, ValueError):  # The terminal may be closed.
            self._rich.stop()

    def _show(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """Update the bar and return its values as text."""
        task = self._rich.tasks[0]
        self._steps, self._told = {}, self._clock()
        with contextlib.suppress(OSError, ValueError):
            self._rich.update(self._task, completed=self._fraction(metrics))
            self._rich.update(self._task, **self._values(metrics, task.time_remaining))
        return task.fields

    def _fraction(self, metrics: Mapping[str, Any]) -> float:
        """Return how much of the run is done, by steps or by iterations, whichever is more."""
        by_steps = (metrics.get("steps") or 0) / self._total
        by_iterations = (metrics.get("iteration") or 0) / self._max_iterations
        return min(1.0, max(by_steps, by_iterations))

    def _values(self, metrics: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """Return each value with its name or unit; an empty text for an unknown value."""
        if metrics.get("eval_return_mean") is not None:
            self._evaluation = metrics["eval_return_mean"]
        left = None if seconds is None else str(timedelta(seconds=seconds))
        return {
            "iteration": _text("iteration {:,}", metrics.get("iteration")),
            "steps": f"{int(metrics.get('steps') or 0):,}/{self._total:,} steps",
            "return": _text("return {:,.1f}", metrics.get("episode_return_mean")),
            "evaluation": _text("evaluation {:,.1f}", self._evaluation),
            "kl": _text("KL {:.2g}", metrics.get("kl")),
            "speed": _text("{:,.0f} steps/s", metrics.get("steps_per_second")),
            "left": f"{left.removeprefix('0:').removeprefix('0')} left" if left else "",
        }


class LineProgress(BarProgress):
    """The values of the bar as plain lines: the first, one every few seconds, and the last.

    Args:
        config: Settings of the run, which define its length.
        begun: Iterations and steps that are already done.
        stream: File to write to. Default: standard error.
        every: Seconds between two lines.
        clock: Clock in seconds.
        log_interval: Iterations between two lines, instead of seconds.
    """

    def __init__(
        self,
        config: TrainConfig,
        begun: tuple[int, int] = (0, 0),
        *,
        stream: TextIO | None = None,
        every: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        log_interval: int | None = None,
    ):
        super().__init__(config, begun, clock=clock, live=False)
        self._stream, self._every, self._patience = stream or sys.stderr, every, every
        self._printed, self._pending, self._log_interval = -math.inf, "", log_interval
        if self._fraction({"iteration": begun[0], "steps": begun[1]}) < 1:
            self._print(COMPILING)

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Print the metrics of an iteration, if the last line is old enough."""
        self._pending = "  ".join(text for text in self._show(metrics).values() if text)
        if self._log_interval is None:
            due = self._clock() - self._printed >= self._every or "eval_return_mean" in metrics
        else:
            due = metrics["iteration"] % self._log_interval == 0
        if due:
            self.close()

    def close(self) -> None:
        """Print the last line, if it was not printed yet."""
        if self._pending:
            self._print(self._pending)
            self._pending, self._printed = "", self._clock()

    def _tell(self, text: str) -> None:
        self._print(f"{text[0].upper()}{text[1:]} …")

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # Whoever was reading may be gone.
            print(line, file=self._stream, flush=True)


def make_progress(
    config: TrainConfig,
    begun: tuple[int, int] = (0, 0),
    *,
    quiet: bool = False,
    log_interval: int | None = None,
) -> Progress:
    """Return the display that suits standard error: a bar on a terminal, else lines.

    Args:
        config: Settings of the run, which define its length.
        begun: Iterations and steps that are already done.
        quiet: Whether to show nothing.
        log_interval: Iterations between two lines, instead of a bar or a line every few seconds.
    """
    if quiet:
        return Progress()
    if log_interval is not None:
        return LineProgress(config, begun, log_interval=log_interval)
    kind = BarProgress if sys.stderr.isatty() else LineProgress
    return kind(config, begun)


def _text(template: str, value: float | None) -> str:
    """Return a value as text; an empty text for None or NaN."""
    return "" if value is None or math.isnan(value) else template.format(value)
