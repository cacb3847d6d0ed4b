"""Two processes on one folder, folders that go away, and mathematics at its limits."""

import os
import shutil
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.faults.counts import record
from tests.faults.processes import MODULE, options, shared_zygote
from tests.faults.test_environments import SEARCH, wait_for
from tests.faults.test_signals import STRIKE, contents
from trellis.agent import TRPO
from trellis.checkpoint_format import load_latest

LONG = [f"{MODULE}:MisbehavingSaved-v0", *SEARCH, "--search.path-length", 20]


def start(out, steps=10**7, **more):
    """Start a run that is still training when this returns."""
    running = shared_zygote().start("train", *LONG, *options(steps, out), **more)
    wait_for(lambda: running.ended() or (out / "checkpoints" / "000002").exists())
    assert not running.ended(), running.output
    return running


@pytest.mark.fault
def test_a_second_process_is_refused(tmp_path):
    out = tmp_path / "run"
    first = start(out)
    try:
        code, output = shared_zygote().run("train", *LONG, *options(100, out))
        assert code == 4, output
        assert "holds a run already" in output
        code, output = shared_zygote().run("resume", out, "--trust-env")
        assert code == 3, output
        assert "used by another process" in output
    finally:
        first.kill_session()
    load_latest(out / "checkpoints")


@pytest.mark.fault
@pytest.mark.parametrize("trial", range(10))
def test_two_processes_that_start_or_resume_together(trial, tmp_path):
    """One of them trains, the other is refused, and the result is that of one alone."""
    record("two processes on one folder", 1, 0)
    out, alone = tmp_path / "run", tmp_path / "alone"
    words = ["train", *LONG]
    both = [shared_zygote().start(*words, *options(400, out)) for _ in range(2)]
    codes = sorted(running.wait() for running in both)
    assert codes[0] == 0, [running.output for running in both]
    assert codes[1] in (3, 4), [running.output for running in both]
    assert not any("Traceback" in running.output for running in both)
    both = [shared_zygote().start("resume", out, "--trust-env", "--steps", 800) for _ in range(2)]
    codes = [running.wait() for running in both]
    assert 0 in codes, [running.output for running in both]
    assert set(codes) <= {0, 3}, [running.output for running in both]
    code, output = shared_zygote().run(*words, *options(800, alone))
    assert code == 0, output
    # The evaluation at the end of the shorter run is in one of the logs alone.
    assert contents(out)[0]["theta"] == contents(alone)[0]["theta"]
    record("two processes on one folder", 0, 1)


@pytest.mark.fault
@pytest.mark.parametrize("how", ["moved", "removed", "replaced", "checkpoints removed"])
def test_a_folder_that_disappears(how, tmp_path):
    record("folders that disappear or are read-only", 1, 0)
    out = tmp_path / "run"
    running = start(out)
    if how == "checkpoints removed":
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        wait_for(lambda: (out / "checkpoints").exists())
        running.send(2)
        assert running.wait() == 130, running.output
        load_latest(out / "checkpoints")
    else:
        os.rename(out, tmp_path / "elsewhere")
        if how == "removed":
            shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        if how == "replaced":
            out.write_text("something else")
        assert running.wait() in (1, 2), running.output
        lines = [line for line in running.output.splitlines() if line.startswith("trellis:")]
        assert len(lines) == 1, running.output
        assert "Traceback" not in running.output
        assert not out.is_dir(), "nothing grows in its place"
    if how == "moved":
        load_latest(tmp_path / "elsewhere" / "checkpoints")
    record("folders that disappear or are read-only", 0, 1)


DROP_RIGHTS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, sets) == 0
for index in range(3):  # Effective, permitted and inheritable: write and read everywhere.
    sets[index] &= ~0b110
assert libc.capset(header, sets) == 0
"""
"""Root may write everywhere. A process without these rights obeys the mode of files, as root."""


@pytest.mark.fault
@pytest.mark.parametrize("what", ["checkpoints", "both"])
def test_a_folder_that_becomes_read_only(what, tmp_path):
    record("folders that disappear or are read-only", 1, 0)
    out = tmp_path / "run"
    running = start(out, before=DROP_RIGHTS)
    folders = [out / "checkpoints", out][: 1 + (what == "both")]
    for folder in folders:
        os.chmod(folder, 0o555)
    assert running.wait() == 1, running.output
    lines = [line for line in running.output.splitlines() if line.startswith("trellis:")]
    assert len(lines) == 1, running.output
    assert "Permission denied" in lines[0]
    assert "earlier checkpoints are intact" in lines[0]
    load_latest(out / "checkpoints")
    code, output = shared_zygote().run("resume", out, "--trust-env", before=DROP_RIGHTS)
    assert code in (1, 2), output
    assert "Permission denied" in output
    assert "Traceback" not in output
    for folder in folders:
        os.chmod(folder, 0o755)
    running = shared_zygote().start("resume", out, "--trust-env", before=DROP_RIGHTS)
    wait_for(lambda: running.ended() or "Resuming" in running.output)
    running.send(15)
    assert running.wait() == 143, running.output
    record("folders that disappear or are read-only", 0, 1)


class Degenerate(gymnasium.Env):
    """Ten steps an episode, with an extreme in one place."""

    def __init__(self, reward=1.0, observation=0.0, actions=2, noise=1.0, box=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(actions) if box is None else spaces.Box(-box, box, (1,))
        self._reward, self._observation, self._noise = reward, observation, noise

    def _look(self):
        noise = self._noise * self.np_random.normal(size=2) if self._noise else 0.0
        return np.full(2, self._observation, np.float32) + np.asarray(noise, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._look(), {}

    def step(self, action):
        self._time += 1
        chosen = float(np.asarray(action).ravel()[0])
        reward = self._reward * (chosen if self._noise else 1.0)
        return self._look(), reward, self._time >= 10, False, {}


DEGENERATE = {
    "no advantage": {"reward": 0.0},
    "constant observations": {"noise": 0.0, "observation": 3.0},
    "one action": {"actions": 1},
    "huge rewards": {"reward": 1e30},
    "largest rewards": {"reward": 3e38},
    "tiny rewards": {"reward": 1e-38},
    "denormal rewards": {"reward": 5e-324},
    "huge observations": {"observation": 1e30, "noise": 1e29},
    "tiny observations": {"observation": 0.0, "noise": 1e-38},
    "a box without width": {"box": 0.0},
    "a box as wide as it gets": {"box": 1e30},
}


@pytest.mark.fault
@pytest.mark.parametrize("critic", ["mlp", "linear", "none"])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_mathematics(case, critic):
    """Training continues with finite parameters, or one clear error says what is wrong."""
    record("degenerate mathematics", 1, 0)
    seen, refused = [], ""
    try:
        agent = TRPO(
            lambda: Degenerate(**DEGENERATE[case]),
            sampling={"num_envs": 2, "steps_per_env": 16},
            policy={"hidden": (4,)},
            estimation={"critic": critic, "critic_hidden": (4,), "critic_epochs": 1},
        )
        agent.learn(96, callback=lambda state, metrics: seen.append((state, metrics)))
        agent.close()
    except ValueError as error:
        refused = str(error)
    assert seen or (refused and case.startswith("a box"))
    for state, metrics in seen:
        assert np.isfinite(state.theta).all()
        assert all(np.isfinite(value).all() for value in state.critic.values())
        assert metrics["status"]
        assert metrics["kl"] < 0.05
    record("degenerate mathematics", 0, 1)


@pytest.mark.fault
def test_a_killed_process_releases_the_folder_at_once(tmp_path):
    out = tmp_path / "run"
    before = STRIKE.format(where="trellis.runs.log:RunLog.write", call=3, number=9)
    code, _ = shared_zygote().run("train", *LONG, *options(400, out), before=before)
    assert code == -9
    started = time.monotonic()
    code, output = shared_zygote().run("resume", out, "--trust-env")
    assert code == 0, output
    assert "another process" not in output
    assert time.monotonic() - started < 60
