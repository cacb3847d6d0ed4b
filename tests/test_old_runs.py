"""Run folders that an earlier version wrote still load, predict, evaluate and resume as they did.

The folders are in `data/runs`, whose README says what made each of them. They are unfinished runs,
with the results of that version beside them in `expected.json`.
"""

import json
import os
import shutil
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file

from trellis import TRPO, SavedPolicy
from trellis.checkpoint_format import load_latest
from trellis.cli.main import main
from trellis.config.file import OldRunWarning, has_checksum
from trellis.runs.log import read_metrics

RUNS = Path(__file__).parent / "data" / "runs"
KINDS = sorted(path.parent.name for path in RUNS.glob("*/expected.json"))
NEEDS = {
    "atari": "ale_py",
    "hopper": "mujoco",
    "natural-gradient": "mujoco",
    "paper-hopper-vine": "mujoco",
    "saved-agent": "mujoco",
}
PICTURE_SHAPE, PICTURE_FACTORS = (4, 52, 40), (1, 47, 51)
"""Atari's observations are bytes by a formula: pixel n of a picture is n · factor mod 251."""
ATARI_SLOW = [pytest.param(k, marks=pytest.mark.slow) if k == "atari" else k for k in KINDS]
"""Atari takes 15 seconds to evaluate and resume, most of them to compile and start emulators."""
RESUMED = [
    pytest.param(k, marks=[pytest.mark.slow] * (k in ("atari", "natural-gradient", "gym-object")))
    for k in KINDS
]
"""The fast tests resume one old run of each sampler, and those of shards and of a saved agent."""


@pytest.fixture
def run(kind, tmp_path):
    """A copy of an old run, in a folder that may be written to."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    with mock.patch.dict(os.environ):  # Resuming shards sets NPROC.
        yield shutil.copytree(RUNS / kind, tmp_path / kind)


def expected(run: Path) -> dict:
    return json.loads((run / "expected.json").read_text())


def observations(run: Path) -> np.ndarray:
    if run.name == "atari":
        pixels = np.outer(PICTURE_FACTORS, np.arange(np.prod(PICTURE_SHAPE))) % 251
        return pixels.reshape(-1, *PICTURE_SHAPE).astype(np.uint8)
    return np.asarray(expected(run)["observations"], np.float32)


def test_kinds_are_found():
    assert len(KINDS) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_run_predicts_the_same_actions(run):
    agent = TRPO.load(run)
    try:
        actions = agent.predict(observations(run), deterministic=True)
    finally:
        agent.close()
    np.testing.assert_allclose(actions, expected(run)["actions"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ATARI_SLOW)
def test_an_old_run_has_the_same_evaluation(run, capsys):
    # Episodes have at most 100 steps, too few for rounding errors to grow to a visible size. Atari
    # samples its actions; a rounding error changes one of them very rarely.
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    evaluation = expected(run)["evaluation"]
    assert result["lengths"] == evaluation["lengths"]
    np.testing.assert_allclose(result["returns"], evaluation["returns"], rtol=1e-3)
    np.testing.assert_allclose(result["mean_return"], evaluation["mean_return"], rtol=1e-3)


@pytest.mark.parametrize("kind", RESUMED)
def test_an_old_run_resumes_to_the_same_parameters(run):
    assert main(["resume", str(run)]) == 0
    newest = max((run / "checkpoints").iterdir())
    theta = load_file(newest / "arrays.safetensors")["theta"].astype(np.float64)
    resumed = expected(run)["resumed"]
    assert int(newest.name) == resumed["iteration"]
    np.testing.assert_allclose(theta[:5], resumed["theta_first"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(theta.sum(), resumed["theta_sum"], rtol=1e-3, atol=1e-3)
    # Resuming adds the checksums that it did not have.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert has_checksum(run)
        assert read_metrics(run)[-1]["iteration"] == resumed["iteration"]
        assert load_latest(run / "checkpoints").config is not None


def test_an_old_run_opens_with_one_notice(tmp_path):
    run = shutil.copytree(RUNS / "cartpole", tmp_path / "cartpole")
    with pytest.warns(OldRunWarning, match="trellis resume"):
        SavedPolicy.load(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SavedPolicy.load(run)
        assert len(read_metrics(run)) == 10
