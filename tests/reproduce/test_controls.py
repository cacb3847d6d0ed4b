"""Vine's controls: their settings, their verdicts, and tiny runs of the two kinds."""

import json

import numpy as np
import pytest

from tests.reproduce.pages import check_page
from trellis.reproduce.comparison.gait import Episodes
from trellis.reproduce.controls.experiment import VineControls
from trellis.reproduce.controls.plans import BY_NAME, CONTROLS, REFERENCES, SEED, SHORT
from trellis.reproduce.controls.scores import control_record, verdict
from trellis.reproduce.files import ResultsError
from trellis.runs.folder import as_json


def test_every_control_changes_one_thing():
    seen = []
    for control in CONTROLS:
        config = control.config(1.0, 0.1, 200)
        assert config.seed == SEED
        assert config.max_iterations == (200 if control.start is None else SHORT)
        assert config.estimation.critic == "none"
        settings = {**as_json(config), "starts_from": control.start}
        assert settings not in seen
        seen.append(settings)
    assert {control.name[0] for control in CONTROLS if control.cause} == set("abcdefgh")
    states = BY_NAME["d-10x-states"].config(0.25, 0.1, 200).sampling.vine.states
    assert states == 10 * BY_NAME["vine"].config(0.25, 0.1, 200).sampling.vine.states


def record(name, training, *, first=50.0, median=100.0, velocity=2.0):
    """The record of an invented log of ten iterations."""
    lengths = [first, *[training] * 9]
    rows = [
        {"iteration": i, "steps": i, "episode_length_mean": n, "reward_per_step": 2.0}
        for i, n in enumerate(lengths, 1)
    ]
    played = Episodes(np.full(3, 300.0), np.full(3, median), np.full(3, velocity))
    return control_record(BY_NAME[name], rows, played)


def test_verdicts():
    references = {"vine": record("vine", 150.0), "single-path": record("single-path", 450.0)}

    def found(name, training, **more):
        return verdict(record(name, training, **more), references)

    assert found("vine", 150.0) == ""
    assert found("f-max-kl", 160.0) == "not supported"
    assert found("f-max-kl", 240.0) == "supported in part"
    assert found("f-max-kl", 240.0, median=900.0) == "supported"
    assert found("f-max-kl", 240.0, median=900.0, velocity=0.1) == "supported in part"
    # These look for the loss of a gait: (a) against its own start, (b) against single path.
    assert found("a-vine-from-gait", 160.0, first=450.0) == "supported"
    assert found("a-vine-from-gait", 440.0, first=450.0) == "not supported"
    assert found("b-single-path-100", 160.0) == "supported"
    assert found("b-single-path-100", 400.0) == "not supported"
    assert verdict(record("f-max-kl", 240.0), {}) == ""


@pytest.mark.slow
def test_tiny_controls_run_and_are_kept(tmp_path):
    names = ("vine", "e-all", "d-10x-states")
    size = {"scale": 0.01, "single_scale": 0.001, "iterations": 2}
    out, runs = tmp_path / "results", tmp_path / "runs"
    VineControls(out, runs=runs, controls=names, **size).run(print)
    text = check_page(out)
    assert "d-10x-states" in text
    assert "Not run yet" in text
    found = json.loads((out / "controls.json").read_text())
    assert [row["name"] for row in found["rows"]] == ["vine", "d-10x-states", "e-all"]
    assert set(REFERENCES) - {row["name"] for row in found["rows"]} == {"single-path"}
    VineControls(out, runs=tmp_path / "lost", controls=names, **size).run(print)
    assert not (tmp_path / "lost").exists()
    with pytest.raises(ResultsError, match="write to another folder"):
        VineControls(out, runs=runs, controls=("vine",)).run(print)
    VineControls(out, runs=tmp_path / "new", controls=("a-vine-from-gait",), **size).run(print)
    assert (tmp_path / "new" / "single-path").is_dir()  # Trained again, since its folder was lost.
