"""Training from pixels: workers may die, vine branches, memory stays bounded."""

import dataclasses
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("ale_py")
from trellis.config import SamplingConfig, TrainConfig, VineConfig
from trellis.envs.atari.batch import AtariBatch
from trellis.presets import resolve
from trellis.training.trainer import Trainer

pytestmark = pytest.mark.slow


def config(preset: str, **changes) -> TrainConfig:
    options = {"preprocessing": "paper", "max_frames": 600}
    return dataclasses.replace(resolve("ALE/Pong-v5", preset), env_options=options, **changes)


def history(settings: TrainConfig, kill_in: int | None = None) -> list[dict]:
    trainer = Trainer(settings)
    state, seen = trainer.start(), []
    for iteration in range(3):
        if iteration == kill_in:
            assert isinstance(trainer.team.shards[0].env, AtariBatch)
            os.kill(trainer.team.shards[0].env.pids[0], signal.SIGKILL)
        state, metrics = trainer.iterate(state)
        seen.append({k: v for k, v in metrics.items() if "second" not in k})
    seen.append({"theta": state.theta.tobytes()})
    trainer.close()
    return seen


def test_a_worker_killed_while_sampling_changes_nothing(caplog):
    settings = config("modern/atari", sampling=SamplingConfig(num_envs=4, steps_per_env=32))
    undisturbed = history(settings)
    assert history(settings, kill_in=1) == undisturbed
    assert "another takes its place" in caplog.text


@pytest.mark.parametrize("game", ["Pong", "Qbert"])
def test_vine_trains(game):
    vine = VineConfig(trunks=2, trunk_length=30, states=6, actions=4, rollout_length=10)
    settings = config("paper/atari-vine", sampling=SamplingConfig(sampler="vine", vine=vine))
    options = {**settings.env_options, "actions": "factored"}
    settings = dataclasses.replace(settings, env=f"ALE/{game}-v5", env_options=options)
    trainer = Trainer(settings)
    state, metrics = trainer.iterate(trainer.start())
    assert metrics["rollouts"] == 24
    assert metrics["steps"] <= 60 + 240
    assert np.isfinite(state.theta).all()
    trainer.close()


@pytest.mark.timeout(3600)
def test_a_hundred_thousand_steps_of_84_by_84_pictures_fit_in_two_gigabytes():
    """All processes together, beyond what they need when idle, over two whole iterations."""
    script = """
import dataclasses, os, pathlib, threading, time
from trellis import presets
from trellis.training.trainer import Trainer

config = presets.resolve("ALE/Pong-v5", "paper/atari-single-path")
options = {**config.env_options, "preprocessing": "gymnasium"}
trainer = Trainer(dataclasses.replace(config, env_options=options))
state = trainer.start()

def resident():
    # Memory that several processes share counts once.
    total = 0
    for pid in (os.getpid(), *trainer.team.shards[0].env.pids):
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e9

def watch():
    global most
    while True:
        most = max(most, resident())
        time.sleep(0.2)

idle = most = resident()
threading.Thread(target=watch, daemon=True).start()
for _ in range(2):
    state, metrics = trainer.iterate(state)
    print(metrics["steps"], idle, most, flush=True)
trainer.close()
"""
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    steps, idle, most = map(float, result.stdout.split()[-3:])
    assert steps >= 200_000
    print(f"{idle:.2f} GB when idle, {most:.2f} GB at most")
    assert most - idle < 2.0, f"{idle:.2f} GB when idle, {most:.2f} GB at most"
