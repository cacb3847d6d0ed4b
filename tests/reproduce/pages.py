"""Checks of generated pages: short cells, known verdicts, no missing file."""

import re
from pathlib import Path

from trellis.reproduce.page import MAX_WORDS, Verdict


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a page as rows of cells."""
    found: list[list[list[str]]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not before.startswith("|"):
                found.append([])
            found[-1].append(cells)
        before = line
    return found


def words(cell: str) -> int:
    """Return the number of words of a cell as a reader sees it, without the targets of links."""
    return len(re.sub(r"\]\([^)]*\)", "]", cell).split())


def check_page(folder: Path) -> str:
    """Check the page of a folder and return its text."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    for table in tables(text):
        assert len({len(row) for row in table}) == 1, table[0]
        for row in table:
            assert all(words(cell) <= MAX_WORDS for cell in row), row
    for claim in claims(text):
        assert claim[1] in list(Verdict), claim
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    assert re.findall("^# .*", prose, re.M) == text.splitlines()[:1]
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not target.startswith("../"):
            assert (folder / target).exists(), target
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall("^#+ (.*)$", prose, re.M)
    }
    for anchor in re.findall(r"\]\(#([^)]*)\)", text):
        assert anchor in anchors, anchor
    return text


def claims(text: str) -> list[list[str]]:
    """Return the rows of the table of claims: claim, verdict, evidence, details."""
    heading = ["claim", "verdict", "evidence", "details"]
    return [row for table in tables(text) if table[0] == heading for row in table[2:]]
