"""Tests of the experiments on masks and on the robot that sees: plans, pages and verdicts."""

import json
import os

import numpy as np
import pytest
from gymnasium import spaces

from tests.reproduce.pages import check_page, claims
from trellis.reproduce.masks import page as masks_page
from trellis.reproduce.masks.experiment import Masks
from trellis.reproduce.masks.game import HiddenMask
from trellis.reproduce.seeing import experiment as seeing
from trellis.reproduce.seeing import page as seeing_page
from trellis.reproduce.variant_curves import last_score, steps_to

MADE = {"command": "trellis reproduce it", "commit": "abc"}
STEPS = [100.0, 500.0, 950.0, 1000.0]


def masked_run(variant, seed, illegal, scores):
    return {
        "variant": variant,
        "seed": seed,
        "total_steps": 1000,
        "steps": 1000,
        "illegal": illegal,
        "curve": {"steps": STEPS, "score": scores},
    }


def test_scores_and_steps_of_a_curve():
    curve = {"steps": STEPS, "score": [1.0, 2.0, 4.0, 6.0]}
    assert last_score(curve) == 5.0
    assert steps_to(curve, 2.0) == 500.0
    assert steps_to(curve, 7.0) is None


@pytest.mark.parametrize(("illegal", "verdict"), [(0, "holds"), (1, "does not hold")])
def test_the_page_of_masks_counts_illegal_actions(tmp_path, illegal, verdict):
    runs = {
        "mask": [masked_run("mask", 0, illegal, [5.0, 9.0, 12.0, 12.0])],
        "penalty": [masked_run("penalty", 0, 77, [2.0, 3.0, 4.0, 6.0])],
    }
    masks_page.write(tmp_path, runs, MADE)
    (tmp_path / "runs.jsonl").touch()
    found = claims(check_page(tmp_path))
    assert [row[1] for row in found] == [verdict, "holds"]
    rows = json.loads((tmp_path / "masks.json").read_text())["rows"]
    assert [row["steps_to_target"] for row in rows] == [100.0, 1000.0]
    assert [row["illegal"] for row in rows] == [illegal, 77]


def test_the_page_of_masks_needs_both_variants(tmp_path):
    (tmp_path / "runs.jsonl").write_text(
        json.dumps(masked_run("mask", 0, 0, [1.0, 2.0, 3.0, 4.0])) + "\n"
    )
    with pytest.raises(ValueError, match="must have a finished run of each variant"):
        Masks(out=tmp_path, steps=1000).write_pages()


def test_a_hidden_mask_is_in_no_observation():
    class Game:
        observation_space = spaces.Dict(
            board=spaces.Box(0.0, 1.0, (2,)), action_mask=spaces.MultiBinary(3)
        )
        action_space, max_episode_steps = spaces.Discrete(3), 5

        def reset(self, key):
            return key, {"board": np.zeros(2), "action_mask": np.ones(3)}

    hidden = HiddenMask(Game())
    assert list(hidden.observation_space.spaces) == list(hidden.reset(None)[1]) == ["board"]


def test_robots_differ_in_their_senses_alone():
    plans = {senses: seeing.Seeing().plan(senses, 4).config for senses in seeing.SENSES}
    assert {plan.preset for plan in plans.values()} == {"modern/camera"}
    assert [plan.env_options["senses"] for plan in plans.values()] == list(seeing.SENSES)
    assert {plan.policy for plan in plans.values()} == {plans["both"].policy}


def test_the_video_is_that_of_the_last_run(tmp_path):
    video, log = tmp_path / "video.mp4", tmp_path / "metrics.jsonl"
    log.touch()
    assert seeing.is_older(video, log)
    video.touch()
    os.utime(log, (1000, 1000))
    assert not seeing.is_older(video, log)
    os.utime(video, (999, 999))
    assert seeing.is_older(video, log)


def test_the_page_of_the_robot_normalizes_returns(tmp_path):
    def runs(*returns):
        curve = {"steps": STEPS, "returns": [1.0, 2.0, 3.0, 4.0]}
        same = {"first_return": 2.0, "steps": 1000, "seconds": 90.0, "curve": curve}
        return [{"seed": seed, "mean_return": value, **same} for seed, value in enumerate(returns)]

    found = {"both": runs(10.0, 8.0, 9.0), "joints": runs(3.0, 3.0), "state": runs(11.0, 13.0)}
    seeing_page.write(tmp_path, found, MADE)
    (tmp_path / "runs").mkdir()
    assert [row[1] for row in claims(check_page(tmp_path))] == ["partly", "undecided"]
    rows = json.loads((tmp_path / "seeing.json").read_text())["rows"]
    assert [row["score"] for row in rows[:3]] == pytest.approx([0.8, 0.6, 0.7])
