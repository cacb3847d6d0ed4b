"""The lines of a run's log: their checksum, how they are parsed, and what is wrong with them.

A line is a JSON object that ends with a checksum of the line. Reading holds one line at a time.
`log.py` writes and reads the file.
"""

import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trellis import strict_json
from trellis.config.file import is_known_as_old
from trellis.strict_json import INT64

CHECKSUM = "checksum"
"""Last entry of a line: the CRC-32 of the line without it, in hexadecimal digits."""
STARTS_LATE = "log_starts_here"
"""Entry of the first line of a log that starts late, because a saved agent was resumed."""
LINE_BYTES = 1 << 16
"""Longest line of a log."""
MOST_DAMAGED = 1000
"""Number of damaged lines at which a log is refused."""
NAMED_PROBLEMS = 5
"""Number of damaged lines that a warning names."""

_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"\}\n\Z')


class LogError(RuntimeError):
    """The log cannot be read or written; the message says where and why."""


class LogWarning(UserWarning):
    """Lines of a log are damaged or missing; the others are used."""


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


def read_lines(file: BinaryIO, path: Path) -> Iterator[Line]:
    """Yield the lines of a log, whole or damaged.

    Raises:
        LogError: A line is longer than any line of a log.
    """
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
