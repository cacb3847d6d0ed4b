"""Words that the vocabulary of docs/design/vocabulary.md replaces do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPLACED = {
    "put back": r"\bput(?:s|ting)? (?:\w+ )?back\b",
    "anew": r"\banew\b",
    "let go": r"\blet(?:s|ting)? go\b",
    "go on": r"\b(?:go|goes|going|went) on\b",
    "film": r"\bfilm(?:s|ed|ing)?\b",
    "drawn": r"(?<![-\w])drawn\b",
    "standing": r"\bstanding\b",
    "criticism": r"\bcriticisms?\b",
    "criticize": r"\bcritici[sz](?:e|es|ed|ing)\b",
}
ALLOWED = [
    # The page that says which word to use instead.
    ("docs/design/vocabulary.md", ""),
    # A body that does not move.
    ("", r"\bstanding still\b"),
]
"""Path, and pattern of a line, in which such a word is fine; an empty one fits everything."""
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
]


ANY = re.compile("|".join(REPLACED.values()), re.IGNORECASE)


def uses(path: str, text: str) -> list[str]:
    found: list[str] = []
    if not ANY.search(text):
        return found
    for number, line in enumerate(text.splitlines(), 1):
        for word, pattern in REPLACED.items():
            if re.search(pattern, line, re.IGNORECASE) and not any(
                path.startswith(file) and re.search(allowed, line) for file, allowed in ALLOWED
            ):
                found.append(f"{path}:{number}: {word!r} in: {line.strip()}")
    return found


def test_replaced_words_are_gone():
    found = [
        use
        for path in FILES
        for use in uses(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "rows are put back",
        "begins anew",
        "lets go of it",
        "and goes on",
        "a filmed policy",
        "actions are drawn",
        "the standing of a shard",
        "after the criticism",
        "criticizes the samples",
    ],
)
def test_replaced_words_are_found(line):
    assert len(uses("src/x.py", line)) == 1


@pytest.mark.parametrize(
    "line", ["--eval-drawn", "eval_drawn", "understanding", "standing still", "microfilming", "Go"]
)
def test_other_words_are_fine(line):
    assert uses("src/x.py", line) == []
