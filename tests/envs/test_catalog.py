"""`make` returns the fastest batch that fits, or an error that says what to do."""

import dataclasses
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import trellis.envs
from trellis import presets
from trellis.envs import MissingExtraError, UnknownEnvironmentError, list_environments, lookup
from trellis.envs.batch import Restorability
from trellis.envs.gym.batch import GymBatch
from trellis.envs.gym.worker_batch import WorkerBatch


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, 0.0, True, False, {}


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Hopper-v5", "trellis/PaperHopper-v0", "trellis/PaperCartPole-v0"]
)
def test_make_uses_the_batched_implementation_if_there_is_one(env_id):
    batch = trellis.envs.make(env_id, 2)
    assert not isinstance(batch, GymBatch)
    assert batch.restorability is Restorability.SERIALIZABLE
    assert (batch.env_id, batch.num_envs) == (env_id, 2)
    assert np.isfinite(batch.reset(np.arange(2), np.arange(2))).all()


def test_options_reach_the_batched_implementation():
    batch = trellis.envs.make("Hopper-v5", 1, max_episode_steps=5, nthread=1)
    assert not isinstance(batch, GymBatch)
    assert batch.max_episode_steps == 5
    seen = trellis.envs.make("Hopper-v5", 1, exclude_current_positions_from_observation=False)
    assert not isinstance(seen, GymBatch)
    assert seen.observation_space.shape == (12,)
    # Batched implementations render without render_mode.
    pictured = trellis.envs.make("CartPole-v1", 1, render_mode="rgb_array")
    assert not isinstance(pictured, GymBatch)


def test_options_that_ours_lacks_use_gymnasium():
    assert isinstance(trellis.envs.make("Hopper-v5", 1, camera_id=0), GymBatch)
    assert isinstance(trellis.envs.make("CartPole-v0", 1), GymBatch)
    assert isinstance(trellis.envs.make("Ant-v4", 1), GymBatch)
    assert isinstance(trellis.envs.make(Plain, 1), GymBatch)
    # The paper's tasks have no other implementation.
    with pytest.raises(TypeError, match="did you mean 'healthy_reward'"):
        trellis.envs.make("trellis/PaperHopper-v0", 1, health_reward=2.0)


def test_atari_with_other_ids_and_options_uses_gymnasium():
    batch = trellis.envs.make("ALE/Pong-v5", 1, obs_type="ram")
    assert isinstance(batch, GymBatch)
    assert batch.observation_space.shape == (128,)
    batch.close()
    batch = trellis.envs.make("PongNoFrameskip-v4", 1)
    assert batch.observation_space.shape == (210, 160, 3)
    batch.close()


def test_workers():
    batch = trellis.envs.make("CartPole-v0", 2, workers=2)
    assert isinstance(batch, WorkerBatch)
    batch.close()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hopper", "Hopper-v5"),
        ("Hoper-v5", "Hopper-v5"),
        ("Hopper-v9", "Hopper-v5"),
        ("PaperWalker", "trellis/PaperWalker-v0"),
        ("cartpole-v1", "CartPole-v1"),
        ("Walker2D-v5", "Walker2d-v5"),
        ("HalfCheetah-v2", "HalfCheetah-v5"),
        ("Pong-v5", "ALE/Pong-v5"),
        ("breakout", "ALE/Breakout-v5"),
    ],
)
def test_an_unknown_id_suggests_the_nearest(typed, meant):
    with pytest.raises(UnknownEnvironmentError, match=f"Did you mean {meant}"):
        trellis.envs.make(typed, 1)


def test_an_id_without_similar_ids_suggests_none():
    with pytest.raises(UnknownEnvironmentError, match="trellis envs") as caught:
        trellis.envs.make("zzzzzz", 1)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "package", "line"),
    [
        ("Hopper-v5", "mujoco", r"pip install 'trellis-rl\[mujoco\]'"),
        ("trellis/PaperHopper-v0", "mujoco", r"pip install 'trellis-rl\[mujoco\]'"),
        ("ALE/Pong-v5", "ale_py", r"pip install 'trellis-rl\[atari\]'"),
        ("PongNoFrameskip-v4", "ale_py", r"pip install 'trellis-rl\[atari\]'"),
        ("LunarLander-v3", "Box2D", r"pip install 'gymnasium\[box2d\]'"),
    ],
)
def test_a_missing_extra_is_named_with_its_install_line(monkeypatch, env_id, package, line):
    present = lookup.installed
    monkeypatch.setattr(lookup, "installed", lambda name: name != package and present(name))
    with pytest.raises(MissingExtraError, match=line):
        trellis.envs.make(env_id, 1)
    listed = {row.env_id: row for row in list_environments()}
    if env_id in listed:
        assert listed[env_id].missing
    assert not listed["CartPole-v1"].missing


def test_the_list_agrees_with_make():
    rows = {row.env_id: row for row in list_environments()}
    assert {"CartPole-v1", "Hopper-v5", "Ant-v5", "trellis/PaperSwimmer-v0", "Taxi-v4"} <= set(rows)
    assert "Hopper-v2" not in rows
    paper = "trellis/PaperWalker-v0"
    for env_id in ("CartPole-v1", "CartPole-v0", "Hopper-v5", paper, "Taxi-v4", "Ant-v5"):
        batch = trellis.envs.make(env_id, 1)
        assert rows[env_id].restorable == batch.restorability.value
        assert rows[env_id].runs.startswith("batched") is not isinstance(batch, GymBatch)
        assert rows[env_id].missing == ""


def test_an_id_of_another_module_is_found_by_its_prefix():
    batch = trellis.envs.make("trellis.envs:trellis/PaperCartPole-v0", 1)
    assert batch.env_id == "trellis/PaperCartPole-v0"


def test_importing_loads_no_simulator():
    code = (
        "import sys, trellis.envs; trellis.envs.make('CartPole-v1', 1);"
        "print([m for m in ('mujoco', 'ale_py', 'jax', 'pygame', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "env_id",
    [
        "gymnasium:CartPole-v1",
        pytest.param("ale_py:ALE/Freeway-v5", marks=pytest.mark.slow),
        "gymnasium.envs:Hopper-v5",
    ],
)
def test_an_id_with_its_module_in_front_is_the_same_environment(env_id):
    bare = env_id.rpartition(":")[2]
    assert type(trellis.envs.make(env_id, 1)) is type(trellis.envs.make(bare, 1))
    assert presets.resolve(env_id) == dataclasses.replace(presets.resolve(bare), env=env_id)
