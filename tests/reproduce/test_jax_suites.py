"""Tests of the experiment on JAX environments: its plans are valid, and its page is complete."""

import json

import pytest

from tests.reproduce.pages import check_page, tables
from trellis.envs.jax.suites import SUITES
from trellis.reproduce.jax_suites import experiment, page


def test_every_task_is_a_listed_environment_with_a_preset():
    study = experiment.JaxSuites()
    for name, task in experiment.TASKS.items():
        suite, _, env = task.env.partition("/")
        assert env in SUITES[suite].names
        config = study.plan(name, 3).config
        assert (config.env, config.total_steps, config.seed) == (task.env, task.steps, 3)
        assert config.preset != "modern/default"
        assert task.goal is None or task.published is None


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="there is no task 'pong'"):
        experiment.JaxSuites(tasks=("pong",))


def test_the_page_counts_what_is_solved(tmp_path):
    def runs(*returns):
        curve = {"steps": [10.0, 20.0, 30.0], "returns": [1.0, 2.0, 3.0]}
        shared = {"curve": curve, "seconds": 4.0, "commit": "abc"}
        return [{"seed": s, "mean_return": r, **shared} for s, r in enumerate(returns)]

    found = {"cartpole": runs(500.0, 480.0, 500.0), "seaquest": runs(30.0), "acrobot": []}
    rows = [
        page.measure(name, experiment.TASKS[name]._asdict(), of_task)
        for name, of_task in found.items()
        if of_task
    ]
    made = {"command": "trellis reproduce jax", "commit": "def"}
    page.write(tmp_path, rows, found, made)
    (tmp_path / "runs").mkdir()
    solved, games, *_ = tables(check_page(tmp_path))
    assert solved[2][-1] == "2 of 3"
    assert solved[2][3:6] == ["493.3", "480.0", "500.0"]
    assert games[2][-1] == "–"
    kept = json.loads((tmp_path / "jax.json").read_text())["rows"]
    assert kept[0]["training_returns"] == [2.0, 2.0, 2.0]
