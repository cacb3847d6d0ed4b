"""Tests of the memory experiment: its plans are valid, and its page normalizes returns."""

import json

import pytest

from tests.reproduce.pages import check_page
from trellis.reproduce.memory import experiment as memory
from trellis.reproduce.memory import page
from trellis.reproduce.memory.claims import claims


def test_every_run_differs_from_the_others_in_its_memory_alone():
    study = memory.Memory()
    for task, (env, full, steps) in memory.TASKS.items():
        plans = {policy: study.plan(task, policy, 3).config for policy in memory.POLICIES}
        assert {plan.total_steps for plan in plans.values()} == {steps}
        assert [plans[p].policy.memory for p in ("gru", "lstm", "none")] == ["gru", "lstm", "none"]
        assert plans["gru"].env == plans["none"].env == env
        if full:
            assert (plans["full"].env, plans["full"].policy.memory) == (full, "none")


def test_the_page_has_scores_between_random_and_full(tmp_path):
    def runs(*returns: float) -> list[dict]:
        pairs = enumerate(returns)
        return [{"seed": s, "mean_return": r, "first_return": 20.0, "steps": 5} for s, r in pairs]

    found = {
        "cartpole": {"gru": runs(80.0, 100.0), "lstm": [], "full": runs(120.0)},
        "t-maze": {"gru": runs(1.0), "none": runs(0.5)},
    }
    made = {"command": "trellis reproduce memory", "commit": "abc"}
    page.write(tmp_path, found, made)
    rows = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert [row["score"] for row in rows] == [pytest.approx(0.7), 1.0, None, None]
    (tmp_path / "runs").mkdir()
    check_page(tmp_path)


def test_seeds_can_be_shared_between_processes():
    later = memory.Memory(seeds=2, first_seed=3, tasks=("hopper",))
    assert later.seed_range == range(3, 5)


@pytest.mark.parametrize("seeds", [5, 4])
def test_claims_need_five_seeds_of_every_policy(seeds):
    def row(task, policy, mean, score=None):
        returns = [mean] * seeds
        return {"task": task, "policy": policy, "returns": returns, "mean": mean, "score": score}

    rows = [
        row("repeat", "gru", 1.0),
        row("repeat", "lstm", 0.9),
        row("repeat", "none", 0.3),
        row("t-maze", "gru", 1.0),
        row("cartpole", "gru", 480.0, 0.96),
        row("cartpole", "full", 500.0, 1.0),
        row("hopper", "gru", 2100.0, 0.6),
        row("hopper", "none", 1100.0),
        row("hopper", "full", 3000.0, 1.0),
    ]
    verdicts = [claim.verdict.value for claim in claims(rows)]
    expected = [
        *("partly", "undecided", "holds", "not tested"),
        *("holds", "does not hold", "not tested", "not tested"),
    ]
    if seeds < 5:
        expected = [verdict if verdict == "not tested" else "undecided" for verdict in expected]
    assert verdicts == expected
