"""The log of a run: one JSON object an iteration in `metrics.jsonl`, and TensorBoard events.

A line is written when its iteration is over. A process that is killed leaves at worst half a line
at the end, and lines that its last checkpoint does not know of: on resume both are cut away, so
that the log reads as if nothing had happened. NaN is never written: what does not exist is null.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"

_TENSORBOARD_FLUSH_SECONDS = 10.0
EVENT_FILE_BYTES = 16 << 20
"""Size of a TensorBoard event file after which a new one begins."""
EVENT_BYTES = 256 << 20
"""Size of all event files of a run after which the oldest are removed; the log keeps everything."""


class LogError(RuntimeError):
    """The log cannot be read or written; the message says where and why."""


class RunLog:
    """Appends the metrics of each iteration; a context manager that closes its files."""

    def __init__(self, folder: Path, *, from_iteration: int = 0, tensorboard: bool = True):
        """Open the log in `folder` and cut away the lines of later iterations than this."""
        self._path = Path(folder) / METRICS
        self._path.touch()
        steps = _cut(self._path, from_iteration)
        # Unbuffered: what a full disk refuses must not be tried again on closing.
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        self._events: _Events | None = None
        if tensorboard:
            events = Path(folder) / TENSORBOARD
            with contextlib.suppress(ImportError):  # An optional extra.
                self._events = _Events(events, steps + 1 if events.exists() else None)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Write the line of one iteration, which survives if this process is killed."""
        row = {name: _json_value(name, value) for name, value in metrics.items()}
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        with self._explained("write to"):
            while line:
                line = line[self._file.write(line) :]
            if self._events is not None:
                self._events.write(row)

    def sync(self) -> None:
        """Wait for the disk: a checkpoint must never be newer than its log."""
        with self._explained("write to"):
            os.fsync(self._file.fileno())
            if self._events is not None:
                self._events.flush()

    def close(self) -> None:
        """Write what is left and close the files."""
        self._file.close()
        if self._events is not None:
            with self._explained("close"):
                self._events.close()

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            self.close()
        except LogError as second:
            if error is None:
                raise
            error.add_note(str(second))  # What stopped the run stays the first thing to be read.

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogError(
                f"cannot {doing} the log in {self._path.parent}: {error.strerror or error};"
                " checkpoints are intact: put it right, then resume the run"
            ) from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log, without one that was not finished when the process ended."""
    with open(Path(folder) / METRICS, "rb") as file:
        return [row for _, row in _rows(file)]


def _rows(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the whole lines, each with the position of its end. Only the last may be damaged."""
    end, bad = 0, None
    for number, line in enumerate(file, 1):
        if bad is not None:
            raise LogError(
                f"line {bad} of {file.name} is damaged, and it is not the last;"
                " mend it or take it out, then try again"
            )
        row = _parse(line)
        if row is None:
            bad = number
            continue
        end += len(line)
        yield end, row


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):  # Even if it parses: "steps": 12 may be the start of 12345.
        return None
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("iteration"), int) else None


def _cut(path: Path, from_iteration: int) -> int:
    """Shorten the log to the iterations up to this one, and return the steps at its end."""
    steps, end = 0, 0
    with open(path, "rb+") as file:
        for line_end, row in _rows(file):
            if row["iteration"] > from_iteration:
                break
            steps, end = int(row.get("steps") or 0), line_end
        file.truncate(end)
        file.flush()
        os.fsync(file.fileno())
    return steps


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; metrics are numbers or words")


class _Events:
    """A TensorBoard event file, written by this thread.

    The library's own background writer waits for ever once its disk is full, and hides why.
    """

    def __init__(self, folder: Path, purge_from: int | None):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        # Their classes are made at import time, where a type checker does not see them.
        events, summaries = cast(Any, event_pb2), cast(Any, summary_pb2)
        self._event, self._summary = events.Event, summaries.Summary
        folder.mkdir(exist_ok=True)
        self._folder, self._new_file = folder, EventsWriter
        self._open()
        self._flushed = time.monotonic()
        if purge_from is not None:
            started = events.SessionLog(status=events.SessionLog.START)
            self._write(step=purge_from, session_log=started)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write all numbers of a line against its steps."""
        scalars = [
            self._summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if isinstance(value, int | float)
        ]
        self._write(step=int(row.get("steps") or 0), summary=self._summary(value=scalars))
        if time.monotonic() - self._flushed > _TENSORBOARD_FLUSH_SECONDS:
            self.flush()

    def _open(self) -> None:
        """Begin a new event file, and remove the oldest ones if all of them are too large."""
        # The library names files by whole seconds, and two runs of one second would be one file.
        self._writer = self._new_file(str(self._folder / "events"), f".{time.time_ns()}")
        self._bytes = 0
        files = sorted(self._folder.glob("events.out.tfevents.*"), reverse=True)
        total = 0
        for path in files:
            total += path.lstat().st_size
            if total > EVENT_BYTES - EVENT_FILE_BYTES:
                path.unlink()

    def _write(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._writer.write_event(event)
        self._bytes += event.ByteSize() + 16  # Length and two checksums.
        if self._bytes > EVENT_FILE_BYTES:
            self._writer.close()
            self._open()

    def flush(self) -> None:
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._writer.close()
