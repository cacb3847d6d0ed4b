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
import re
import secrets
import stat
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from trellis import strict_json
from trellis.config_file import LOG_FILE as METRICS
from trellis.config_file import is_known_as_old
from trellis.safe_files import make_folder, new_file, open_file, open_to_append, truncate
from trellis.strict_json import INT64

TENSORBOARD = "tensorboard"
CHECKSUM = "checksum"
"""Last entry of a line: the CRC-32 of the line without it, in hexadecimal digits."""
STARTS_LATE = "log_starts_here"
"""Entry of the first line of a log that starts late, because a saved agent was resumed."""
LOG_BYTES = 1 << 34
"""Largest log that is read."""
LINE_BYTES = 1 << 16
"""Longest line of a log."""
MOST_DAMAGED = 1000
"""Number of damaged lines at which a log is refused."""
NAMED_PROBLEMS = 5
"""Number of damaged lines that a warning names."""

_TENSORBOARD_FLUSH_SECONDS = 10.0
_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"\}\n\Z')
EVENT_FILE_BYTES = 16 << 20
"""Size of a TensorBoard event file in bytes at which a new one starts."""
EVENT_BYTES = 256 << 20
"""Size of all event files of a run in bytes at which the oldest are removed."""


class LogError(RuntimeError):
    """The log cannot be read or written; the message says where and why."""


class LogWarning(UserWarning):
    """Lines of a log are damaged or missing; the others are used."""


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
        self._events: _Events | None = None
        if tensorboard:
            has_events = (self._folder / TENSORBOARD).exists()
            try:
                with contextlib.suppress(ImportError), self._explained("open"):  # An extra.
                    self._events = _Events(self._folder, steps + 1 if has_events else None)
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


class Line(NamedTuple):
    """A line of the log."""

    number: int
    """Number of the line, from 1."""
    data: bytes
    """The line with its end."""
    end: int
    """Position of its end in the file."""
    row: dict[str, Any] | None
    """Metrics without the checksum; None if the line is damaged."""
    is_verified: bool
    """Whether the line has a checksum; those of earlier versions do not."""


class Problems:
    """Collects what is wrong with a log, and warns about all of it at once."""

    def __init__(self, path: Path):
        self._path, self._found = path, []
        self._damaged, self._last, self._unverified = 0, 0, 0
        self._is_verified = False

    def add(self, line: Line) -> bool:
        """Take note of a line and return whether its row can be used."""
        number, row = line.number, line.row
        if row is None:
            return self._damage(number, "is damaged or incomplete")
        if self._is_verified and not line.is_verified:
            return self._damage(number, "has no checksum")
        if row["iteration"] <= self._last:
            return self._damage(number, f"repeats iteration {row['iteration']}")
        if row.pop(STARTS_LATE, False) and not self._last:
            self._last = row["iteration"] - 1
        self._is_verified = line.is_verified
        self._unverified += not line.is_verified
        self._expect(row["iteration"], f"before line {number}")
        self._last, self._damaged = row["iteration"], 0
        return True

    def end(self, newest: int | None) -> None:
        """Warn about everything; `newest` is an iteration that the log must have, if any."""
        if newest is not None:
            self._expect(newest + 1, "at the end")
        if self._unverified and not is_known_as_old(self._path.parent):
            self._found.append(
                f"the first {self._unverified} lines have no checksum, as in earlier versions"
            )
        if self._found:
            named = "; ".join(self._found[:NAMED_PROBLEMS])
            more = len(self._found) - NAMED_PROBLEMS
            rest = f"; and {more} more" if more > 0 else ""
            warnings.warn(
                f"{self._path}: {named}{rest}. Using the other lines.", LogWarning, stacklevel=4
            )

    def _damage(self, number: int, what: str) -> bool:
        self._damaged += 1
        self._found.append(f"line {number} {what}")
        if len(self._found) > MOST_DAMAGED:
            raise LogError(
                f"{self._path} has more than {MOST_DAMAGED:,} damaged lines, the first of them line"
                f" {self._found[0].split()[1]}: restore the file from a copy, or delete it"
            )
        return False

    def _expect(self, iteration: int, where: str) -> None:
        """Take note of iterations that are missing, beyond those on damaged lines."""
        missing = iteration - self._last - 1
        if missing > self._damaged:
            first, last = self._last + 1, iteration - 1
            which = (
                f"iteration {first} is" if first == last else f"iterations {first} to {last} are"
            )
            self._found.append(f"{which} missing {where}")


def add_checksum(text: bytes) -> bytes:
    """Return a JSON object with its CRC-32 as the last entry, and the end of a line."""
    return b'%b, "checksum": "%08x"}\n' % (text[:-1], zlib.crc32(text))


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
        for line in _lines(file, path):
            if problems.add(line):
                yield cast(dict[str, Any], line.row)
    problems.end(newest)


def _lines(file: BinaryIO, path: Path) -> Iterator[Line]:
    number = end = 0
    while data := file.readline(LINE_BYTES + 1):
        number, end = number + 1, end + len(data)
        if len(data) > LINE_BYTES:
            raise LogError(
                f"line {number} of {path} is longer than {LINE_BYTES:,} bytes: it is not the log of"
                " a run. Restore the file from a copy, or delete it"
            )
        yield Line(number, data, end, *_parse(data))


def _parse(data: bytes) -> tuple[dict[str, Any] | None, bool]:
    """Return the row, None if the line is damaged, and whether it has a checksum."""
    if not data.endswith(b"}\n"):  # Even if it parses: "steps": 12 may be the start of 12345.
        return None, False
    found = _CHECKSUM.search(data)
    text = data if found is None else data[: found.start()] + b"}"
    if found is not None and zlib.crc32(text) != int(found[1], 16):
        return None, True
    try:
        row = strict_json.parse(text, integers_below=INT64)
    except ValueError:
        return None, found is not None
    return (row if _is_row(row) else None), found is not None


def _is_row(row: Any) -> bool:
    """Return whether this is an object of plain values with an iteration and steps."""
    return (
        isinstance(row, dict)
        and all(type(row.get(name)) is int and row[name] >= 0 for name in ("iteration", "steps"))
        and all(value is None or isinstance(value, int | float | str) for value in row.values())
        and CHECKSUM not in row
    )


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
        for line in _lines(file, path):
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
        for line in _lines(file, path):
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


class _Events:
    """A TensorBoard event file, written by this thread.

    The library's own background writer waits for ever once its disk is full, and hides why.
    """

    def __init__(self, run: Path, purge_from: int | None):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        # Their classes are made at import time, where a type checker does not see them.
        events, summaries = cast(Any, event_pb2), cast(Any, summary_pb2)
        self._event, self._summary = events.Event, summaries.Summary
        make_folder(run, TENSORBOARD)
        self._folder, self._new_file = run / TENSORBOARD, EventsWriter
        self._open()
        self._flushed = time.monotonic()
        if purge_from is not None:
            started = events.SessionLog(status=events.SessionLog.START)
            self._write(step=purge_from, session_log=started)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write all numbers of a row against its steps."""
        scalars = [
            self._summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if isinstance(value, int | float)
        ]
        self._write(step=int(row.get("steps") or 0), summary=self._summary(value=scalars))
        if time.monotonic() - self._flushed > _TENSORBOARD_FLUSH_SECONDS:
            self.flush()

    def _open(self) -> None:
        """Start a new event file, and remove the oldest files if all of them are too large."""
        # The library names files by whole seconds. Nobody can have prepared a link of this name.
        suffix = f".{time.time_ns()}.{secrets.token_hex(8)}"
        self._writer = self._new_file(str(self._folder / "events"), suffix)
        self._bytes = total = 0
        for path in sorted(self._folder.glob("events.out.tfevents.*"), reverse=True):
            about = path.lstat()
            total += about.st_size
            if total > EVENT_BYTES - EVENT_FILE_BYTES and stat.S_ISREG(about.st_mode):
                path.unlink()

    def _write(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._writer.write_event(event)
        self._bytes += event.ByteSize() + 16  # Length and two checksums.
        if self._bytes > EVENT_FILE_BYTES:
            self._writer.close()
            self._open()

    def flush(self) -> None:
        """Write what is buffered to the file."""
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write what is buffered and close the file."""
        self._writer.close()
