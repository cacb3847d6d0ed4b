"""Runs on real JAX suites: vine, kill −9 and resume, and two Ray workers give the same bits."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cluster.rays import ray_folder, start_ray, team_on
from tests.faults.test_signals import contents
from tests.training.cases import CARTPOLE, SINGLE_PATH, VINE, train
from trellis.envs.jax import suites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
IDS = ("gymnax/CartPole-v1", "pgx/minatar-breakout", "navix/Navix-Empty-5x5-v0")
SMALL = (
    "--policy.hidden 8 --estimation.critic-hidden 8 --sampling.num-envs 8"
    " --sampling.steps-per-env 16 --steps 1024 --eval-every 0 --checkpoint-every 1 --threads 1"
)
BRANCHES = (
    "--sampler vine --sampling.vine.trunks 4 --sampling.vine.trunk-length 16"
    " --sampling.vine.states 8 --sampling.vine.actions 2 --sampling.vine.rollout-length 8"
)
SHARDS = 2


def skip_missing(env_id):
    suite = suites.SUITES[env_id.partition("/")[0]]
    skip = pytest.mark.skipif(not suites.installed(suite.module), reason=suite.install)
    return pytest.param(env_id, marks=skip, id=env_id)


every_suite = pytest.mark.parametrize("env_id", [skip_missing(env_id) for env_id in IDS])
every_sampler = pytest.mark.parametrize("sampling", [SINGLE_PATH, VINE], ids=["path", "vine"])


@pytest.fixture(scope="module")
def one_ray():
    with ray_folder() as folder:
        start_ray(folder)
        yield


@every_suite
@every_sampler
def test_two_ray_workers_give_the_bits_of_one_process(env_id, sampling, one_ray):
    sampling = dataclasses.replace(sampling, shards=SHARDS)
    config = dataclasses.replace(CARTPOLE, env=env_id, sampling=sampling)
    here = train(config, iterations=3)
    assert here == train(config, team_on("auto", 2), iterations=3)
    assert here != train(dataclasses.replace(config, seed=1), iterations=3)


def trellis(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "trellis", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output


@every_suite
@pytest.mark.parametrize("options", ["", BRANCHES], ids=["path", "vine"])
def test_a_killed_run_resumes_bit_for_bit(env_id, options, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    words = ["train", env_id, *SMALL.split(), *options.split(), "--out"]
    finish(trellis(*words, whole))
    process = trellis(*words, killed)
    log, deadline = killed / "metrics.jsonl", time.monotonic() + 600
    while not (log.exists() and log.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    finish(trellis("resume", killed))
    assert contents(killed) == contents(whole)
