"""The pages in results/: short cells, known verdicts, links, small figures, up to date."""

import shutil
from pathlib import Path

import pytest

from tests.reproduce.pages import check_page, claims, tables, words
from trellis.analysis import figures
from trellis.cli.reproduce import reproduce
from trellis.reproduce.page import MAX_WORDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("results/**/README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_kept_page_is_readable(page):
    check_page(page.parent)
    for figure in page.parent.glob("*.svg"):
        assert figure.stat().st_size < 300_000
        assert figure.with_suffix(".png").exists()


@pytest.mark.parametrize(
    ("experiment", "folder"),
    [
        *((name, name) for name in ("training", "recipe", "jax", "memory", "masks", "seeing")),
        *((name, name) for name in ("comparison", "ablations", "atari", "theory")),
        ("locomotion", "full-size"),
        ("vine-variance", "vine"),
        ("vine-controls", "controls"),
    ],
)
def test_a_kept_page_is_what_its_experiment_writes(experiment, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "write_figure", lambda figure, path: None)
    copy = tmp_path / folder
    shutil.copytree(ROOT / "results" / folder, copy)
    assert reproduce([experiment, "--out", str(copy), "--report-only"]) == 0
    for name in ("README.md", "claims.json"):
        if (copy / name).exists():
            kept = (ROOT / "results" / folder / name).read_text(encoding="utf-8")
            assert (copy / name).read_text(encoding="utf-8") == kept


def test_the_overview_has_the_verdicts_of_the_pages():
    overview = tables((ROOT / "docs/results/index.md").read_text(encoding="utf-8"))
    rows = next(table for table in overview if table[0] == ["claim", "verdict", "page"])
    listed = {row[0]: row[1] for row in rows[2:]}
    for name in ("comparison", "ablations", "atari", "vine", "theory"):
        text = (ROOT / "results" / name / "README.md").read_text(encoding="utf-8")
        found = {claim[0]: claim[1] for claim in claims(text)}
        assert found
        assert found.items() <= listed.items()
    assert len(listed) == 26


@pytest.mark.parametrize("name", ["index.md", "speed.md"])
def test_the_pages_about_results_have_short_cells(name):
    for table in tables((ROOT / "docs/results" / name).read_text(encoding="utf-8")):
        assert all(words(cell) <= MAX_WORDS for row in table for cell in row)
