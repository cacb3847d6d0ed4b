"""Writing results: JSON that is kept, CSV and Markdown made from it, and what made them."""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trellis.runs.folder import write_whole
from trellis.runs.provenance import commit

Record = Mapping[str, Any]
"""Results as plain JSON values."""


class ResultsError(ValueError):
    """The results that a folder holds do not allow what was asked for; the message says why."""


def write_json(path: Path, record: Record) -> None:
    """Write indented JSON with every list of numbers, such as a curve, on one line.

    Results may hold days of training: the whole file is written, or the one before stays.
    """
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    folded = re.sub(r"\[(?:null|[-+\d.eE,\s])+\]", lambda found: " ".join(found[0].split()), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, folded + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the results in a file; none if it does not exist."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path} cannot be read ({error}): move it away") from error


def write_csv(
    path: Path, columns: Iterable[str], rows: Iterable[Record], *, line_end: str = "\n"
) -> None:
    """Write these columns of the rows; a missing value becomes an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(columns), extrasaction="ignore", lineterminator=line_end)
        table.writeheader()
        table.writerows(rows)


def markdown_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    # A star, as in Q*bert, must not start emphasis.
    text = [f"| {' | '.join(line)} |".replace("*", r"\*") for line in (heading, *rows)]
    return [text[0], f"|{'---|' * len(heading)}", *text[1:]]


def cell(value: float | None, spec: str, blank: str = "-") -> str:
    """Return a number as the text of a table cell."""
    return blank if value is None else format(value, spec)


def made_by(command: str) -> dict[str, str]:
    """Return the entries that say what made a result."""
    return {"command": command, "commit": commit()}


def maker_lines(
    named: Iterable[tuple[str, Record]], separator: str = "; ", *, name_single: bool = False
) -> list[str]:
    """Return Markdown paragraphs that say which command made which results.

    Args:
        named: Names of the results, and the records with their `command` and `commit`.
        separator: Text between names.
        name_single: Name the results even where one command made all of them.
    """
    makers: dict[tuple[str, str], list[str]] = {}
    for name, record in named:
        makers.setdefault((record["command"], record["commit"]), []).append(name)
    lines: list[str] = []
    for (command, version), names in makers.items():
        shown = len(makers) > 1 or name_single
        what = f" ({separator.join(names)})" if shown else ""
        lines += [f"`{command}`, reported by commit {version}{what}.", ""]
    return lines


def rounded(values: Iterable[float]) -> list[float]:
    """Return numbers with six digits."""
    return [float(f"{value:.6g}") for value in values]
