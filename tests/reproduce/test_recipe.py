"""Tests of the recipe study: its plans are valid, and its page compares equal seeds only."""

import pytest

from tests.reproduce.pages import check_page
from trellis.reproduce.recipe import experiment as recipe
from trellis.reproduce.recipe import page
from trellis.reproduce.recipe.candidates import CANDIDATES


def test_every_candidate_is_a_valid_run_that_differs_from_the_others():
    study = recipe.Recipe()
    for task in recipe.GOALS:
        plans = [study.plan(candidate, task, 100) for candidate in CANDIDATES.values()]
        assert len({plan.folder for plan in plans}) == len(CANDIDATES)
        assert all(plan.config.total_steps == 1_000_000 for plan in plans)
        assert all(plan.config.threads == 1 for plan in plans)


def test_candidates_that_are_the_same_run_are_trained_once(tmp_path):
    study = recipe.Recipe(tmp_path)
    both = [study.plan(CANDIDATES[name], "Swimmer-v5", 100) for name in ("baseline", "max-kl-0.02")]
    assert recipe.KeptRuns(tmp_path, 2).missing(both) == both[:1]


def test_the_page_compares_runs_with_the_same_seeds(tmp_path):
    def runs(**returns: float) -> list[dict]:
        return [{"seed": int(s[1:]), "mean_return": value} for s, value in returns.items()]

    goals = {"A": 10.0, "B": 100.0}
    found = {
        "baseline": {"A": runs(s100=5.0, s101=50.0), "B": runs(s100=60.0)},
        "epochs-20": {"A": runs(s100=10.0), "B": runs(s100=80.0, s101=0.0)},
    }
    made = {"command": "trellis reproduce recipe", "commit": "abc"}
    page.write(tmp_path, found, goals, made)
    rows = {row["candidate"]: row for row in recipe_rows(tmp_path)}
    assert rows["epochs-20"]["score"] == pytest.approx((1.0 + 0.8) / 2)
    assert rows["epochs-20"]["baseline"] == pytest.approx((0.5 + 0.6) / 2)
    assert "+0.350" in (tmp_path / "README.md").read_text()
    check_page(tmp_path)


def test_a_candidate_that_changes_nothing_on_a_task_has_no_runs_there(tmp_path, monkeypatch):
    kept = {"seed": 100, "mean_return": 5.0}

    def seeds_of(self, config):
        return [kept] if config.env == "Swimmer-v5" else []

    monkeypatch.setattr(recipe.KeptRuns, "seeds_of", seeds_of)
    recipe.Recipe(tmp_path).write_pages()
    names = [row["candidate"] for row in recipe_rows(tmp_path)]
    assert "baseline" in names
    assert "epochs-20" in names
    assert "max-kl-0.02" not in names, "the preset of the swimmer has this δ already"


def recipe_rows(folder):
    import json

    return json.loads((folder / "recipe.json").read_text())["candidates"]
