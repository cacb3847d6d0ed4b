"""Tests that masked, mixed and seeing environments train from their id, with no further option."""

import json
import os
import subprocess
import sys

import pytest

IDS = ("trellis/KnightsTour-v0", "trellis/Carry-v0", "trellis/SeeingReacher-v0")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("env_id", IDS)
def test_trains_without_an_option(env_id, tmp_path):
    command = [sys.executable, "-m", "trellis", "train", env_id, "--max-iterations", "2"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "run"],
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no OpenGL context" in done.stderr:
        pytest.skip("this machine has no EGL")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows] == ["accepted", "accepted"]
