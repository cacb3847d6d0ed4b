"""Tests of kept runs: several processes add to one file, and no run is kept twice."""

import dataclasses
import multiprocessing

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


def test_two_processes_keep_every_run_once(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add, args=(tmp_path, worker)) for worker in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    runs = KeptRuns(tmp_path, 1).of("CartPole-v1")
    assert sorted(run["seed"] for run in runs) == list(range(30))
