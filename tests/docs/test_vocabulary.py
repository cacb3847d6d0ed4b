"""Words that the vocabulary of docs/design/vocabulary.md replaces do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPLACED = (
    r"\bput(?:s|ting)?\s+(?:\w+\s+)?back\b",
    r"\banew\b",
    r"\blet(?:s|ting)?\s+go\b",
    r"\b(?:go|goes|going|went)\s+on\b",
    r"\bfilm(?:s|ed|ing)?\b",
    r"(?<![-\w])drawn\b",
    r"\bstanding\b",
    r"\bcriticisms?\b",
    r"\bcritici[sz](?:e|es|ed|ing)\b",
)
ANY = re.compile("|".join(REPLACED), re.IGNORECASE)
ALLOWED = [
    # The page that says which word to use instead.
    ("docs/design/vocabulary.md", ""),
    # A body that does not move.
    ("", r"\bstanding still\b"),
]
"""Path, and pattern of the text around, where such a word is fine; an empty one fits everything."""
AROUND = 40
"""Characters before and after a word that are shown, and that a pattern sees."""
FILES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.py")),
]


def uses(path: str, text: str) -> list[str]:
    found = []
    for match in ANY.finditer(text):
        # A sentence may go over two lines.
        context = " ".join(text[max(0, match.start() - AROUND) : match.end() + AROUND].split())
        allowed = (re.search(pattern, context) for file, pattern in ALLOWED if file in ("", path))
        if not any(allowed):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: {match[0]!r} in: … {context} …")
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
        "and goes\n    on",
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
