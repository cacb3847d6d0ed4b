"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere.

`Progress` shows nothing. `BarProgress` shows rich's bar; `LineProgress` prints a line every few
seconds and the last one, for logs and pipes. rich estimates the time left for both, from the second
iteration on, because the first one compiles.
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
UNKNOWN = "-"


class Progress:
    """Shows nothing; the interface of what shows something. A context manager."""

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""

    def close(self) -> None:
        """Show the last metrics and release the terminal."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BarProgress(Progress):
    """A live bar with return, KL, speed and time left.

    Args:
        config: settings of the run, which say when it is over.
        begun: iterations and steps that are done already.
        clock: a clock in seconds.
        live: whether to show the bar at all.
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
        self._rich = RichProgress(
            TextColumn("iteration {task.fields[iteration]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[steps]}"),
            TextColumn("return [bold]{task.fields[return]}"),
            TextColumn("eval [bold]{task.fields[eval]}"),
            TextColumn("KL {task.fields[KL]}"),
            TextColumn("{task.fields[steps/s]} steps/s"),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
            speed_estimate_period=math.inf,
            get_time=clock,
            disable=not live,
            expand=True,
        )
        metrics: dict[str, Any] = {"iteration": begun[0], "steps": begun[1]}
        self._task = self._rich.add_task("", total=1, **self._columns(metrics, None))
        self._rich.update(self._task, completed=self._fraction(metrics))
        self._rich.start()

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""
        self._show(metrics)

    def close(self) -> None:
        """Show the last metrics and release the terminal."""
        with contextlib.suppress(OSError, ValueError):  # The terminal may be closed.
            self._rich.stop()

    def _show(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Update the bar and return the text of its columns."""
        task = self._rich.tasks[0]
        with contextlib.suppress(OSError, ValueError):
            self._rich.update(self._task, completed=self._fraction(metrics))
            self._rich.update(self._task, **self._columns(metrics, task.time_remaining))
        return task.fields

    def _fraction(self, metrics: Mapping[str, Any]) -> float:
        """Return how much of the run is done, by steps or by iterations, whichever is more."""
        by_steps = (metrics.get("steps") or 0) / self._total
        by_iterations = (metrics.get("iteration") or 0) / self._max_iterations
        return min(1.0, max(by_steps, by_iterations))

    def _columns(self, metrics: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        if metrics.get("eval_return_mean") is not None:
            self._evaluation = metrics["eval_return_mean"]
        left = UNKNOWN if seconds is None else str(timedelta(seconds=seconds))
        return {
            "iteration": str(metrics.get("iteration", UNKNOWN)),
            "steps": f"{int(metrics.get('steps') or 0):,}/{self._total:,}",
            "return": _number(metrics.get("episode_return_mean")),
            "eval": _number(self._evaluation),
            "KL": _number(metrics.get("kl"), ".2g"),
            "steps/s": _number(metrics.get("steps_per_second"), ",.0f"),
            "left": left.removeprefix("0:").removeprefix("0"),
        }


class LineProgress(BarProgress):
    """The same columns as a plain line, every few seconds and at the end."""

    def __init__(
        self,
        config: TrainConfig,
        begun: tuple[int, int] = (0, 0),
        *,
        stream: TextIO | None = None,
        every: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(config, begun, clock=clock, live=False)
        self._stream, self._every, self._clock = stream or sys.stderr, every, clock
        self._printed, self._pending = clock(), ""

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Print the metrics of an iteration, if the last line is old enough."""
        # A name for each value, so that a line can be read without the ones before it.
        columns = self._show(metrics).items()
        self._pending = "  ".join(f"{name} {value}" for name, value in columns if value != UNKNOWN)
        if self._clock() - self._printed >= self._every or "eval_return_mean" in metrics:
            self.close()

    def close(self) -> None:
        """Print the last line, if it was not printed yet."""
        if self._pending:
            with contextlib.suppress(OSError, ValueError):  # Whoever was reading may be gone.
                print(self._pending, file=self._stream, flush=True)
            self._pending, self._printed = "", self._clock()


def make_progress(
    config: TrainConfig, begun: tuple[int, int] = (0, 0), *, quiet: bool = False
) -> Progress:
    """Return what suits standard error: a bar on a terminal, lines elsewhere, nothing if quiet.

    Arguments are as for `BarProgress`.
    """
    if quiet:
        return Progress()
    kind = BarProgress if sys.stderr.isatty() else LineProgress
    return kind(config, begun)


def _number(value: float | None, spec: str = ",.1f") -> str:
    return UNKNOWN if value is None or math.isnan(value) else format(value, spec)
