"""The result of `compare_runs` as tables: for a terminal, as Markdown, as CSV or as JSON."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from trellis.analysis.statistics import interval_text

TableFormat = Literal["text", "markdown", "csv", "json"]
CSV_COLUMNS = ("env", "group", "runs", "mean", "interquartile_mean", "low", "high", "unfinished")
"""Columns of the CSV table, which has one row per group."""


class TextTable(NamedTuple):
    """A table of texts, with names in its first two columns and numbers in the others."""

    title: str
    """Title above the table."""
    heading: Sequence[str]
    """Names of the columns."""
    rows: Sequence[Sequence[str]]
    """Texts of the cells, row by row."""
    note: str
    """Sentence below the table."""


def text_tables(found: Mapping[str, Any]) -> Iterator[TextTable]:
    """Yield the tables of a comparison: final performance, and probability of improvement.

    Args:
        found: Result of `compare_runs`.
    """
    heading = ("environment", "group", "runs", "mean", "interquartile mean", "95% interval")
    rows = []
    unfinished = [len(row["unfinished"]) for row in found["groups"]]
    for row, count in zip(found["groups"], unfinished, strict=True):
        middle = row["interquartile_mean"]
        runs = f"{len(row['scores'])}{'*' if count else ''}"
        interval = interval_text(middle["low"], middle["high"], ",.1f")
        numbers = (f"{row['mean']:,.1f}", f"{middle['value']:,.1f}", interval)
        rows.append((row["env"], row["group"], runs, *numbers))
    note = "Intervals: stratified bootstrap over runs."
    if any(unfinished):
        note += f" *: with unfinished runs ({sum(unfinished)} in all)."
    yield TextTable(f"Final performance ({found['score']})", heading, rows, note)
    if found["improvement"]:
        heading = ("group", "over", "shared environments", "probability", "95% interval")
        rows = [
            (
                *(row["group"], row["over"], str(len(row["envs"]))),
                *(f"{row['value']:.2f}", interval_text(row["low"], row["high"], ".2f")),
            )
            for row in found["improvement"]
        ]
        note = "Probability that a run of the first group beats a run of the second."
        yield TextTable("Probability of improvement", heading, rows, note)


def as_markdown(found: Mapping[str, Any]) -> str:
    """Return the tables of a comparison as Markdown."""
    blocks = []
    for table in text_tables(found):
        ends = ["---" if index < 2 else "---:" for index in range(len(table.heading))]
        lines = [f"**{table.title}**", "", _markdown_row(table.heading), _markdown_row(ends)]
        lines += [_markdown_row(row) for row in table.rows]
        blocks.append("\n".join([*lines, "", table.note]))
    return "\n\n".join(blocks) + "\n"


def as_csv(found: Mapping[str, Any]) -> str:
    """Return one row per group as CSV, with plain numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in found["groups"]:
        middle = row["interquartile_mean"]
        numbers = (row["mean"], middle["value"], middle["low"], middle["high"])
        writer.writerow(
            (row["env"], row["group"], len(row["scores"]), *numbers, len(row["unfinished"]))
        )
    return text.getvalue()


def as_json(found: Mapping[str, Any]) -> str:
    """Return everything about a comparison as one JSON object."""
    return json.dumps(found) + "\n"


FORMATS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "markdown": as_markdown,
    "csv": as_csv,
    "json": as_json,
}
"""Formats that are plain text."""


def show(found: Mapping[str, Any], table_format: TableFormat = "text") -> None:
    """Print a comparison.

    Args:
        found: Result of `compare_runs`.
        table_format: Tables for a terminal, Markdown, CSV or JSON.
    """
    if table_format in FORMATS:
        print(FORMATS[table_format](found), end="")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    for text in text_tables(found):
        table = Table(title=text.title, caption=text.note, box=box.SIMPLE_HEAD)
        for index, column in enumerate(text.heading):
            number = index >= 2
            name = column.replace(" mean", "\nmean").replace(" env", "\nenv") if number else column
            table.add_column(name, justify="right" if number else "left", no_wrap=number)
        for row in text.rows:
            table.add_row(*row)
        Console().print(table)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
