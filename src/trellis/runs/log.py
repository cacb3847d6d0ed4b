"""The log of a run: one JSON object per iteration in `metrics.jsonl`, and TensorBoard events.

A line is written when its iteration is over, and ends with a checksum of the line. A process that
is killed leaves at worst an incomplete last line, and lines that its last checkpoint does not know
of. Resuming removes both, so the log reads as if nothing had happened. NaN is never written: a
value that does not exist is null.

Readers hold one line at a time. They leave out lines that are damaged, and warn with their numbers.

| limit | value |
|---|---|
| size of the log | 16 GiB |
| length of a line | 64 KiB |
| damaged lines | 1,000 |
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from trellis.config.file import LOG_FILE as METRICS
from trellis.runs.events import TENSORBOARD, Events
from trellis.runs.log_lines import (
    CHECKSUM,
    LINE_BYTES,
    STARTS_LATE,
    LogError,
    Problems,
    add_checksum,
    read_lines,
)
from trellis.safe_files import new_file, open_file, open_to_append, truncate

LOG_BYTES = 1 << 34
"""Largest log that is read."""


class RunLog:
    """Appends the metrics of each iteration; a context manager that closes its files."""

    def __init__(self, folder: Path, *, from_iteration: int = 0, tensorboard: bool = True):
        """Open the log in `folder` and remove the lines of later iterations than this."""
        self._folder = Path(folder)
        with self._explained("open"):
            steps, is_empty = _cut(self._folder, from_iteration)
            # Unbuffered: what a full disk refuses must not be tried again on closing.
            self._file = open_to_append(self._folder, METRICS)
        self._starts_late = is_empty and from_iteration > 0
        self._events: Events | None = None
        if tensorboard:
            has_events = (self._folder / TENSORBOARD).exists()
            try:
                with contextlib.suppress(ImportError), self._explained("open"):  # An extra.
                    self._events = Events(self._folder, steps + 1 if has_events else None)
            except BaseException:
                self._file.close()
                raise

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Write the line of one iteration, which survives if this process is killed."""
        row = {name: _json_value(name, value) for name, value in metrics.items()}
        if CHECKSUM in row or STARTS_LATE in row:
            raise TypeError(f"no metric can have the name {CHECKSUM} or {STARTS_LATE}")
        mark = {STARTS_LATE: True} if self._starts_late else {}
        line = add_checksum(json.dumps({**row, **mark}, allow_nan=False).encode())
        self._starts_late = False
        if len(line) > LINE_BYTES:
            raise TypeError(f"the metrics of an iteration take {len(line):,} bytes; log fewer")
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
            error.add_note(str(second))  # The error that stopped the run comes first.

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogError(
                f"cannot {doing} the log in {self._folder}: {error.strerror or error};"
                " checkpoints are intact: correct this, then resume the run"
            ) from error


def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a run's log, without damaged lines, which bring a warning."""
    return list(stream_metrics(folder))


def stream_metrics(folder: Path | str, newest: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run's log one by one, without damaged lines; warn at the end.

    Args:
        folder: The run folder.
        newest: Iteration up to which the log must reach, if it is known.

    Raises:
        LogError: The file is not a log; the message says why.
    """
    path = Path(folder) / METRICS
    problems = Problems(path)
    try:
        file = open_file(folder, METRICS, limit=LOG_BYTES)
    except OSError as error:
        raise LogError(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        for line in read_lines(file, path):
            if problems.add(line):
                yield cast(dict[str, Any], line.row)
    problems.end(newest)


def _cut(folder: Path, from_iteration: int) -> tuple[int, bool]:
    """Shorten the log to the iterations up to this one.

    Returns the steps at its end, and whether nothing is left of it.

    Lines of earlier versions get their checksums. A file that has another name is replaced by a
    copy.
    """
    path = folder / METRICS
    problems, steps, end, unverified = Problems(path), 0, 0, False
    try:
        file = open_file(folder, METRICS, limit=LOG_BYTES)
    except FileNotFoundError:
        problems.end(from_iteration)
        return 0, True
    with file:
        for line in read_lines(file, path):
            if line.row is not None and line.row["iteration"] > from_iteration:
                break
            if problems.add(line) and line.row is not None:
                steps, end = line.row["steps"], line.end
                unverified |= not line.is_verified
        problems.end(from_iteration)
        if unverified or os.fstat(file.fileno()).st_nlink > 1:
            _rewrite(folder, file, path, end)
        else:
            truncate(folder, METRICS, end)
    return steps, not end


def _rewrite(folder: Path, file: BinaryIO, path: Path, end: int) -> None:
    """Replace the log by a copy of its lines up to the position `end`, each with a checksum."""
    file.seek(0)
    with new_file(folder, METRICS) as copy:
        for line in read_lines(file, path):
            if line.end > end:
                break
            is_old = line.row is not None and not line.is_verified
            copy.write(add_checksum(line.data.rstrip()) if is_old else line.data)


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"metric {name!r} is a {type(value).__name__}; metrics are numbers or words")
