"""The pages of the results in Markdown: tables, claims with verdicts, commands, files.

A page is made from the data files in its folder alone. If the folder has a `notes.md`, written by
hand, the page includes it. No cell of a table has more than `MAX_WORDS` words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from trellis.reproduce.files import Record
from trellis.runs.folder import write_whole

PAGE = "README.md"
NOTES = "notes.md"
"""File with remarks on the results that no program can write."""
MAX_WORDS = 15
"""Largest number of words in a cell of a table."""
BLANK = "–"
"""Cell of a table without a value."""


class Verdict(StrEnum):
    """What became of a claim of the paper."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"
    PARTLY = "partly"
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"


MEANINGS = {
    Verdict.HOLDS: "Every case of the claim was tested and agrees.",
    Verdict.DOES_NOT_HOLD: "At least one case disagrees, and none agrees.",
    Verdict.PARTLY: "Some cases agree; others disagree, are undecided or were not tested.",
    Verdict.UNDECIDED: "Cases were run, but their intervals overlap or the runs are too few.",
    Verdict.NOT_TESTED: "No case was run.",
}
"""What each verdict means."""


class Claim(NamedTuple):
    """A claim of the paper as a row of a table."""

    section: str
    """Place in the paper; empty for what goes beyond it."""
    claim: str
    """The claim in a few words."""
    verdict: Verdict
    evidence: str
    """What was found, in one line."""
    link: str
    """Markdown link to the details."""


def judge(
    agreements: Iterable[bool | None], *, complete: bool = True, enough_seeds: bool = True
) -> Verdict:
    """Return the verdict on a claim from its cases.

    Args:
        agreements: Whether each tested case agrees with the claim; None if it is undecided.
        complete: Whether every case of the claim was tested.
        enough_seeds: Whether every case has as many seeds as a verdict needs.
    """
    found = {case if enough_seeds else None for case in agreements}
    if True in found:
        return Verdict.HOLDS if found == {True} and complete else Verdict.PARTLY
    if False in found:
        return Verdict.DOES_NOT_HOLD
    return Verdict.UNDECIDED if found else Verdict.NOT_TESTED


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table and an empty line."""
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in (heading, *rows)]
    return [lines[0], f"|{'---|' * len(heading)}", *lines[1:], ""]


def _escaped(text: str) -> str:
    """Return the text of a cell without bars, and without stars that would start emphasis."""
    return re.sub(r"(?<!\*)\*(?!\*)", r"\\*", text.replace("|", r"\|"))


def cell(value: float | None, spec: str) -> str:
    """Return a number as the text of a cell."""
    return BLANK if value is None else format(value, spec)


def claims_table(claims: Iterable[Claim], heading: str = "Claims of the paper") -> list[str]:
    """Return the lines of a section with claims, by default of the paper, and their verdicts."""
    rows = [
        (
            f"{claim.claim} ({claim.section})" if claim.section else claim.claim,
            claim.verdict.value,
            claim.evidence,
            claim.link,
        )
        for claim in claims
    ]
    return [
        f"## {heading}",
        "",
        *table(("claim", "verdict", "evidence", "details"), rows),
    ]


def verdict_meanings() -> list[str]:
    """Return the lines of a table that explains the verdicts."""
    rows = [(verdict.value, meaning) for verdict, meaning in MEANINGS.items()]
    return table(("verdict", "meaning"), rows)


def picture(name: str, about: str) -> list[str]:
    """Return the lines that show a figure, which exists as PNG and as SVG.

    Args:
        name: Name of the files without their ending.
        about: What the figure shows.
    """
    return [f"![{about}]({name}.svg)", "", f"[PNG]({name}.png)", ""]


def commands(named: Iterable[tuple[str, Record]]) -> list[str]:
    """Return a code block with the commands that made the results.

    Args:
        named: Names of the results, and records with their `command` and `commit`.
    """
    makers: dict[tuple[str, str], list[str]] = {}
    for name, record in named:
        makers.setdefault((record["command"], record["commit"]), []).append(name)
    lines = ["```sh"]
    for (command, commit), names in makers.items():
        lines += [f"# {'; '.join(names)} (written by commit {commit})", command]
    return [*lines, "```", ""]


def _file_table(folder: Path, about: Mapping[str, str]) -> list[str]:
    """Return a section with the files that the folder has."""
    rows = [(f"[{name}]({name})", text) for name, text in about.items() if (folder / name).exists()]
    return ["## Files", "", *table(("file", "contents"), rows)]


def write(folder: Path, lines: Sequence[str], about_files: Mapping[str, str]) -> None:
    """Write the page of a folder: these lines, the notes, and a list of files.

    Args:
        folder: Folder with the data files.
        lines: Title and sections in Markdown.
        about_files: Contents of each file, by name; a file that does not exist is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / NOTES
    remarks = [notes.read_text("utf-8").rstrip(), ""] if notes.is_file() else []
    text = "\n".join([*lines, *remarks, *_file_table(folder, about_files)])
    write_whole(folder / PAGE, text.rstrip() + "\n")
