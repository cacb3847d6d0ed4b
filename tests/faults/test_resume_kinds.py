"""Kill −9 and resume: bit for bit for every kind of run that claims it, and a notice for others.

Every kind of run is killed at ten moments each: before and after files reach the disk, while
checkpoints are switched, and in the middle of an iteration.
"""

import logging
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.faults.counts import record
from tests.faults.misbehaving import Misbehaving, Saved
from tests.faults.processes import MODULE, options, shared_zygote
from tests.faults.test_signals import STRIKE, contents
from tests.runs.test_run import CONFIG, FakeTrainer
from trellis.envs.gym.make import make_gym
from trellis.runs.run import resume, train
from trellis.training.build import why_inexact

STEPS = 384
SEARCH = "--search.population 4 --search.path-length 16"
VINE = (
    "--sampler vine --sampling.vine.trunks 2 --sampling.vine.trunk-length 16"
    " --sampling.vine.states 8 --sampling.vine.actions 2 --sampling.vine.rollout-length 5"
)
MEMORY = "--policy.memory gru --policy.memory-units 3"
KINDS = {
    "batched arrays": "CartPole-v1",
    "batched physics": "Hopper-v5",
    "natural gradient": "CartPole-v1 --method natural-gradient --step.multiplier 0.1"
    " --estimation.advantages center",
    "vine": f"CartPole-v1 {VINE}",
    "shards": "CartPole-v1 --shards 2",
    "memory": f"CartPole-v1 {MEMORY}",
    "memory and vine": f"CartPole-v1 {MEMORY} {VINE}",
    "masks": "trellis/KnightsTour-v0",
    "masks and memory": "trellis/KnightsTour-v0 --policy.memory lstm --policy.memory-units 3",
    "mixed actions": "trellis/Carry-v0",
    "pictures and joints": "trellis/SeeingReacher-v0 --policy.channels 2 2",
    "CEM": f"CartPole-v1 --method cem {SEARCH}",
    "CMA": f"CartPole-v1 --method cma {SEARCH}",
    "Python objects with a state": f"{MODULE}:MisbehavingSaved-v0",
    "workers": f"{MODULE}:MisbehavingSaved-v0 --env-options workers=1",
    "Atari emulators": "ALE/Pong-v5 --policy.channels 2 2 --env-options workers=1 max_frames=400",
    "copied objects in whole paths": "CartPole-v0 --sampling.whole-paths",
}
LATER = """
import threading, os, time, trellis.runs.log
def kill_later(original, row, calls=[]):
    def write(self, metrics):
        calls.append(1)
        if len(calls) == row:
            threading.Timer({delay}, os.kill, (os.getpid(), 9)).start()
        return original(self, metrics)
    return write
trellis.runs.log.RunLog.write = kill_later(trellis.runs.log.RunLog.write, {row})
"""


def moments(kind):
    """Code that kills a process, at ten moments of a run."""
    rng = random.Random(kind)
    for _ in range(4):
        yield STRIKE.format(where="os:fsync", call=rng.randrange(1, 20), number=9)
    for _ in range(3):
        yield STRIKE.format(where="os:replace", call=rng.randrange(1, 8), number=9)
    for _ in range(3):
        yield LATER.format(delay=rng.uniform(0.0, 0.05), row=rng.randrange(1, 5))


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """What a run of each kind ends with."""
    found = {}

    def final(kind):
        if kind not in found:
            out = tmp_path_factory.mktemp("uninterrupted") / "run"
            words = ["train", *KINDS[kind].split(), *options(STEPS, out)]
            code, output = shared_zygote().run(*words, seconds=280)
            assert code == 0, output
            assert "not bit for bit" not in output
            found[kind] = contents(out)
        return found[kind]

    return final


@pytest.mark.fault
@pytest.mark.parametrize("trial", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_resumes_bit_for_bit(kind, trial, tmp_path, uninterrupted):
    record("kill −9 and resume, bit for bit", 1, 0)
    out, expected = tmp_path / "run", uninterrupted(kind)
    words = ["train", *KINDS[kind].split(), *options(STEPS, out)]
    before = list(moments(kind))[trial]
    running = shared_zygote().start(*words, before=before)
    assert running.wait(280) in (-9, 0), running.output
    assert not running.wait_for_others(2.0)
    if (out / "config.json").exists():
        words = ["resume", out, "--trust-env"]
    code, output = shared_zygote().run(*words, seconds=280)
    assert code == 0, output
    assert contents(out) == expected
    record("kill −9 and resume, bit for bit", 0, 1)


@pytest.mark.fault
def test_a_run_that_can_only_be_copied_says_so_and_continues(tmp_path):
    """Resumed from its first checkpoint it is exact; later it starts new episodes."""
    outs = [tmp_path / name for name in ("whole", "early", "late")]
    before = [
        "",
        *(STRIKE.format(where="trellis.runs.run_state:save", call=n, number=9) for n in (2, 4)),
    ]
    for out, strike in zip(outs, before, strict=True):
        words = ["train", "CartPole-v0", *options(STEPS, out)]
        code, output = shared_zygote().run(*words, before=strike, seconds=280)
        assert code == (-9 if strike else 0), output
        assert "it can be resumed, but not bit for bit" in output
    for out in outs[1:]:
        code, output = shared_zygote().run("resume", out, "--trust-env", seconds=280)
        assert code == 0, output
        assert output.count("bit for bit") == 1
    assert contents(outs[1]) == contents(outs[0])
    assert contents(outs[2]) != contents(outs[0])


class Unseeded(gymnasium.Env):
    """Ignores its seed."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return *self.reset()[:1], 1.0, False, False, {}


@pytest.mark.parametrize(
    ("env", "starts_new_episodes", "reason"),
    [
        (Misbehaving, False, "Misbehaving cannot be saved to a checkpoint"),
        (Misbehaving, True, ""),
        (Saved, False, ""),
        (Unseeded, True, "Unseeded does not play the same episode twice from one seed"),
    ],
)
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.fault)])
def test_what_cannot_be_resumed_exactly_is_known(env, starts_new_episodes, reason, workers):
    batch = make_gym(env, 1, workers=workers)
    assert why_inexact(batch, starts_new_episodes=starts_new_episodes) == reason
    batch.close()


def test_a_notice_at_the_start_and_one_at_every_resume(tmp_path, caplog):
    class Inexact(FakeTrainer):
        inexact = "Fake-v0 cannot be saved to a checkpoint"

    trainer: Any = Inexact(CONFIG)
    with caplog.at_level(logging.WARNING):
        train(trainer, tmp_path / "run", quiet=True, tensorboard=False)
    assert [record.getMessage() for record in caplog.records] == [
        "Fake-v0 cannot be saved to a checkpoint: if this run is interrupted, it can be resumed,"
        " but not bit for bit."
    ]
    caplog.clear()
    (tmp_path / "run" / "metrics.jsonl").unlink()
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        folder.rename(tmp_path / folder.name)
    with caplog.at_level(logging.WARNING):
        resume(tmp_path / "run", make_trainer=Inexact, quiet=True, tensorboard=False)
    assert len(caplog.records) == 1, "a run without a checkpoint starts again, and says the same"
