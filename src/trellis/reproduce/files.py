"""Data files of results: JSON with everything that was measured, and CSV tables made from it."""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trellis.runs.folder import write_whole
from trellis.runs.provenance import commit

Record = Mapping[str, Any]
"""Results as plain JSON values."""


class ResultsError(ValueError):
    """The results in a folder conflict with the request; the message says why."""


def write_json(path: Path, record: Record) -> None:
    """Write indented JSON with every list of numbers, such as a curve, on one line.

    The file is replaced as a whole, so that a crash leaves the old one intact.
    """
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    folded = re.sub(r"\[(?:null|[-+\d.eE,\s])+\]", lambda found: " ".join(found[0].split()), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, folded + "\n")


def append_line(path: Path, record: Record) -> None:
    """Add a JSON line by one write, which the system does not mix with those of other processes."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Return the results in a file, or an empty dictionary if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ResultsError(
            f"{path} is not valid JSON ({error}): restore it, or move it away and run again"
        ) from error


def read_results(path: Path) -> dict[str, Any]:
    """Return the results in a file, or raise a ResultsError if there is no such file."""
    if not path.is_file():
        raise ResultsError(
            f"there is no {path} to write a page from: leave out --report-only to measure it, or"
            " name the folder with --out"
        )
    return read_json(path)


def write_csv(
    path: Path, columns: Iterable[str], rows: Iterable[Record], *, line_end: str = "\n"
) -> None:
    """Write these columns of the rows; a missing value becomes an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(columns), extrasaction="ignore", lineterminator=line_end)
        table.writeheader()
        table.writerows(rows)


def made_by(command: str) -> dict[str, str]:
    """Return the command and commit that made a result, as entries of its record."""
    return {"command": command, "commit": commit()}


def rounded(values: Iterable[float]) -> list[float]:
    """Return numbers with six digits."""
    return [float(f"{value:.6g}") for value in values]
