"""The pages about the paper name tests and files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "paper").glob("*.md"))


@pytest.fixture(scope="module")
def test_names() -> set[str]:
    texts = (path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"def (test_\w+)\(", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page, test_names):
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    assert named <= test_names
    if page.name == "map.md":
        assert len(named) > 40


def test_the_map_names_every_source_file_of_the_theory_and_the_step():
    text = (ROOT / "docs" / "paper" / "map.md").read_text()
    for folder in ("theory", "optimization"):
        for path in (ROOT / "src" / "trellis" / folder).glob("*.py"):
            if path.stem not in NOT_IN_THE_PAPER:
                assert f"src/trellis/{folder}/{path.name}" in text


NOT_IN_THE_PAPER = {
    "__init__",
    "as_batch",
    "average",
    "as_gymnasium",
    "examples",
    "objective",
    "picture_objective",
    "trust_region",
}
"""Modules of these packages that belong to the software alone."""
