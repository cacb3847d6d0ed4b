"""Tests of kept runs: several writers add to one file, and no run is kept twice."""

import dataclasses
import threading

import pytest

from trellis import presets
from trellis.reproduce.kept_runs import KeptRuns, identity


def record_of(config, worker):
    return {
        "env": config.env,
        "seed": config.seed,
        "settings": identity(config),
        "mean_return": float(worker),
        "curve": {"steps": list(range(4000)), "returns": [0.5] * 4000},  # more than one buffer
    }


def add(folder, worker):
    kept = KeptRuns(folder, 1)
    config = presets.resolve("CartPole-v1")
    for seed in range(30):
        config = dataclasses.replace(config, seed=seed)
        kept._add(config, record_of(config, worker))


@pytest.mark.slow
def test_two_writers_keep_every_run_once(tmp_path):
    """Each opens the file by itself, so its lock acts among threads as among processes."""
    writers = [threading.Thread(target=add, args=(tmp_path, worker)) for worker in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    runs = KeptRuns(tmp_path, 1).of("CartPole-v1")
    assert sorted(run["seed"] for run in runs) == list(range(30))
