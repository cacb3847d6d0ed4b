"""Bad inputs to the Python interface: one clear line, and nothing is lost.

Those of the command line are in tests/cli/test_messages.py, those of names and environments of
other libraries in tests/test_agent_habits.py.
"""

import numpy as np
import pytest

from tests.test_agent import TINY, make_agent
from trellis import TRPO, SavedPolicy, TrainConfig, check_env, envs
from trellis.runs import run

REFUSED = {
    "preset": (lambda: TRPO("CartPole-v1", preset="zzz"), "there is no preset 'zzz'"),
    "id": (lambda: TRPO("Hoper-v5"), "Did you mean Hopper-v5"),
    "empty id": (lambda: TRPO(""), "env must be"),
    "seed": (lambda: TRPO("CartPole-v1", seed=-1), "seed must be at least 0"),
    "seed text": (lambda: TRPO("CartPole-v1", seed="a"), "seed must be"),
    "max_kl": (lambda: TRPO("CartPole-v1", step={"max_kl": -1}), "max_kl must be > 0, got -1"),
    "max_kl nan": (lambda: TRPO("CartPole-v1", step={"max_kl": np.nan}), "must be a finite number"),
    "gamma": (lambda: TRPO("CartPole-v1", estimation={"gamma": 2}), r"gamma must be in \(0, 1\]"),
    "hidden": (lambda: TRPO("CartPole-v1", policy={"hidden": 64}), "hidden must be"),
    "critic": (lambda: TRPO("CartPole-v1", estimation={"critic": "x"}), "critic must be one of"),
    "method": (lambda: TRPO("CartPole-v1", step={"method": "ppo"}), "method must be one of trpo"),
    "num_envs": (lambda: TRPO("CartPole-v1", sampling={"num_envs": 0}), "num_envs must be"),
    "part of an environment": (
        lambda: TRPO("CartPole-v1", sampling={"num_envs": 2.5}),
        "num_envs must be a whole number, got 2.5",
    ),
    "no units of memory": (
        lambda: TRPO("CartPole-v1", policy={"memory": "gru", "memory_units": 0}),
        "memory_units must be at least 1, got 0",
    ),
    "sampler": (lambda: TRPO("CartPole-v1", sampling={"sampler": "x"}), "sampler must be one of"),
    "nested": (
        lambda: TRPO("CartPole-v1", sampling={"vine": {"state": 1}}),
        "VineConfig has no setting state; .*did you mean states",
    ),
    "total_steps": (lambda: TRPO("CartPole-v1", total_steps=0), "total_steps must be at least 1"),
    "env_options": (
        lambda: TRPO("CartPole-v1", env_options={"a": object()}),
        "cannot be written as JSON",
    ),
    "config": (lambda: TrainConfig("CartPole-v1", eval_episodes=0), "eval_episodes must be at"),
    "load nothing": (lambda: TRPO.load("nowhere"), "nowhere is not a run or a saved agent"),
    "load object": (lambda: TRPO.load("nowhere", env=[]), r"list of 0.* Write TRPO.load\(path"),
    "policy nothing": (lambda: SavedPolicy.load("nowhere"), "nowhere is not a run or a saved"),
    "resume nothing": (lambda: run.resume("nowhere"), "is not a run: there is no config.json"),
    "batch size": (lambda: envs.make("CartPole-v1", 0), "num_envs must be at least 1, got 0"),
    "batch object": (lambda: envs.make(3, 1), "env must be an id or a callable, got int"),
    "check object": (lambda: check_env(3), r"env must be an id such as check_env\('CartPole-v1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_argument_is_one_line_and_leaves_nothing_behind(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attempt, words = REFUSED[name]
    with pytest.raises((ValueError, TypeError, OSError, RuntimeError), match=words) as caught:
        attempt()
    assert str(caught.value).strip()
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bad_use_of_an_agent_changes_nothing(tmp_path):
    agent = make_agent()
    theta = agent.theta.tobytes()
    (tmp_path / "file").write_text("thesis")
    bad = [
        (lambda: agent.predict(np.zeros(3)), r"cannot act on this observation .* Box\("),
        (lambda: agent.predict("left"), "cannot act on this observation"),
        (lambda: agent.predict({"a": 1}), "cannot act on this observation"),
        (lambda: agent.evaluate(0), "at least 1"),
        (lambda: agent.save(tmp_path / "file"), "cannot write"),
        (lambda: agent.learn(256, log_dir=tmp_path / "file"), "choose another"),
        (lambda: agent.learn(256, callback=3), "callback must be a function"),
        (lambda: agent.learn(256, callback=[3]), "callback must be a function"),
        (lambda: TRPO.load(tmp_path / "file", policy=TINY), "not a run or a saved agent"),
    ]
    for attempt, words in bad:
        with pytest.raises((ValueError, TypeError, OSError, RuntimeError), match=words) as caught:
            attempt()
        assert len(str(caught.value).splitlines()) == 1
    assert agent.theta.tobytes() == theta
    assert (agent.steps, (tmp_path / "file").read_text()) == (0, "thesis")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert agent.learn(256, progress_bar=False).steps == 256
