"""A run that is killed and resumed ends with the same bytes as one that was not."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trellis import checkpoint_format
from trellis.cli.main import main
from trellis.runs.log import read_metrics

ITERATIONS, KILLED_AFTER = 10, 5
SMALL = ["--policy.hidden", "16", "--estimation.critic-hidden", "16", "--step.max-kl", "0.02"]


def command(env: str, seed: int, out: Path) -> list[str]:
    batch = 8 * 32
    options = {
        "--steps": ITERATIONS * batch,
        "--seed": seed,
        "--out": out,
        "--sampling.num-envs": 8,
        "--sampling.steps-per-env": 32,
        "--checkpoint-every": batch,
        "--eval-every": 0,
        "--eval-episodes": 2,
    }
    flags = [str(part) for pair in options.items() for part in pair]
    return [sys.executable, "-m", "trellis", "train", env, *flags, *SMALL]


def kill_after(process: subprocess.Popen, out: Path, iterations: int) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError("the run ended before it could be killed")
        if (out / "metrics.jsonl").exists() and len(read_metrics(out)) >= iterations:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return
        time.sleep(0.002)
    raise AssertionError("the run did not get far enough")


def final_bytes(out: Path) -> dict[str, bytes]:
    saved = checkpoint_format.load_latest(out / "checkpoints")
    assert saved.iteration == ITERATIONS
    return {name: value.tobytes() for name, value in saved.arrays.items()}


def check(env: str, seed: int, folder: Path) -> None:
    whole, broken = folder / "whole", folder / "broken"
    assert main(command(env, seed, whole)[3:]) == 0
    process = subprocess.Popen(
        command(env, seed, broken), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    kill_after(process, broken, KILLED_AFTER)
    before = checkpoint_format.load_latest(broken / "checkpoints").iteration
    assert before < ITERATIONS
    resumed = [sys.executable, "-m", "trellis", "resume", str(broken)]
    subprocess.run(resumed, check=True, capture_output=True)
    assert final_bytes(broken) == final_bytes(whole)
    keys = ("iteration", "steps", "kl", "episode_return_mean", "surrogate_gain")
    one, other = (
        [{key: row.get(key) for key in keys} for row in read_metrics(out)]
        for out in (whole, broken)
    )
    assert one == other


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    check("CartPole-v1", 0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("env", ["Hopper-v5", "CartPole-v1"])
def test_killed_runs_go_on_bit_for_bit(env, seed, tmp_path):
    check(env, seed, tmp_path)


@pytest.mark.slow
def test_shards_end_with_the_same_bytes_here_and_on_a_cluster(tmp_path):
    pytest.importorskip("ray")
    whole, clustered = tmp_path / "whole", tmp_path / "clustered"
    for out, where in ((whole, []), (clustered, ["--cluster", "local", "--workers", "2"])):
        arguments = [*command("CartPole-v1", 0, out), "--shards", "2", *where]
        subprocess.run(arguments, check=True, capture_output=True)
    assert final_bytes(whole) == final_bytes(clustered)


@pytest.mark.slow
def test_memory_stays_flat_over_two_thousand_iterations(tmp_path):
    """Resident memory of the process after 200 and after 2,000 iterations of CartPole-v1."""
    script = f"""
import dataclasses, pathlib
from trellis import presets
from trellis.config import SamplingConfig
from trellis.runs.run import train
from trellis.training.trainer import Trainer

def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

marks = {{}}
def watch(state, metrics):
    if state.iteration in (200, 2000):
        marks[state.iteration] = resident()

config = dataclasses.replace(
    presets.resolve("CartPole-v1"), sampling=SamplingConfig(8, 32), total_steps=2000 * 256,
    eval_every=50_000, checkpoint_every=50_000)
train(Trainer(config), {str(tmp_path / "run")!r}, quiet=True, callbacks=[watch])
print(marks[200], marks[2000])
"""
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    early, late = map(float, result.stdout.split()[-2:])
    assert late < early + 20, f"{early:.0f} MiB after 200 iterations, {late:.0f} after 2,000"
