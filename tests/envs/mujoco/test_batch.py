"""Tests of MuJoCo batches against Gymnasium's own tasks, and of errors specific to batches."""

import ctypes.util
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import trellis.envs
from trellis.envs.mujoco import v5
from trellis.envs.mujoco.batch import MujocoBatch
from trellis.envs.mujoco.task import ASSETS

OPTIONS = {
    "Swimmer-v5": {"frame_skip": 2, "ctrl_cost_weight": 0.3, "reset_noise_scale": 0.2},
    "Hopper-v5": {
        "frame_skip": 3,
        "exclude_current_positions_from_observation": False,
        "healthy_reward": 2.0,
        "healthy_state_range": (-8.0, 8.0),
    },
    "Walker2d-v5": {
        "terminate_when_unhealthy": False,
        "forward_reward_weight": 2.0,
        "healthy_angle_range": (-0.1, 0.1),
    },
    "HalfCheetah-v5": {"exclude_current_positions_from_observation": False},
    "InvertedPendulum-v5": {"reset_noise_scale": 0.05},
    "InvertedDoublePendulum-v5": {"healthy_reward": 3.0, "frame_skip": 3},
    "Reacher-v5": {"reward_dist_weight": 2.0, "reward_control_weight": 0.1},
    "Pusher-v5": {"reward_near_weight": 0.1, "reward_dist_weight": 2.0, "frame_skip": 3},
    "Ant-v5": {
        "main_body": "front_left_leg",
        "contact_force_range": (-0.5, 2.0),
        "contact_cost_weight": 0.1,
        "healthy_z_range": (0.4, 0.9),
        "exclude_current_positions_from_observation": False,
        "frame_skip": 2,
    },
    "Humanoid-v5": {
        "include_cvel_in_observation": False,
        "contact_cost_weight": 1e-3,
        "contact_cost_range": (-np.inf, 5.0),
        "healthy_z_range": (1.2, 2.0),
        "frame_skip": 3,
    },
    "HumanoidStandup-v5": {
        "include_cfrc_ext_in_observation": False,
        "impact_cost_weight": 1e-3,
        "frame_skip": 3,
    },
}
SLOW_PHYSICS = ("Ant-v5", "Humanoid-v5", "HumanoidStandup-v5")


def compare(env_id: str, seeds: int, steps: int, **options) -> None:
    """Step ours and Gymnasium's with the same seeds and actions, and compare."""
    ours = trellis.envs.make(env_id, seeds, **options)
    theirs = [gymnasium.make(env_id, **options) for _ in range(seeds)]
    assert ours.observation_space == theirs[0].observation_space
    assert ours.action_space == theirs[0].action_space
    high = theirs[0].action_space.high
    rng = np.random.default_rng(0)
    next_seed = seeds
    first = ours.reset(np.arange(seeds), np.arange(seeds))
    for row, env in enumerate(theirs):
        np.testing.assert_array_equal(first[row], env.reset(seed=row)[0])
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (seeds, len(high))).astype(np.float32)
        step = ours.step(actions)
        for row, env in enumerate(theirs):
            observation, reward, terminated, truncated, info = env.step(actions[row] * high)
            np.testing.assert_allclose(step.observation[row], observation, rtol=0, atol=1e-9)
            assert step.reward[row] == pytest.approx(reward, rel=0, abs=1e-9)
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated)
            assert set(info) == set(ours.info)
            for name, value in info.items():
                assert ours.info[name][row] == pytest.approx(value, rel=0, abs=1e-9), name
            if terminated or truncated:
                again = ours.reset(np.array([row]), np.array([next_seed]))
                np.testing.assert_array_equal(again[0], env.reset(seed=next_seed)[0])
                next_seed += 1
    for env in theirs:
        env.close()


@pytest.mark.parametrize("env_id", v5.TASKS)
def test_equals_gymnasium(env_id):
    compare(env_id, seeds=3, steps=15 if env_id in SLOW_PHYSICS else 120)


@pytest.mark.parametrize("env_id", OPTIONS)
def test_options_have_the_same_meaning(env_id):
    compare(env_id, seeds=2, steps=12 if env_id in SLOW_PHYSICS else 60, **OPTIONS[env_id])


@pytest.mark.slow
@pytest.mark.parametrize("env_id", v5.TASKS)
def test_equals_gymnasium_over_many_steps(env_id):
    compare(env_id, seeds=20, steps=1000)


def test_time_limit_truncates_where_gymnasium_does():
    compare("Reacher-v5", seeds=1, steps=101)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "trellis/PaperWalker-v0", "Ant-v5"])
def test_thread_counts_do_not_change_a_bit(env_id):
    def run(nthread: int) -> bytes:
        env, rng = trellis.envs.make(env_id, 13, nthread=nthread), np.random.default_rng(0)
        env.reset(np.arange(13), np.arange(13))
        out = []
        for _ in range(40):
            step = env.step(rng.normal(size=(13, *env.action_space.shape)))
            out += [step.observation.tobytes(), step.reward.tobytes()]
            ended = np.flatnonzero(step.terminated)
            out.append(env.reset(ended, ended).tobytes())
        return b"".join(out)

    assert run(1) == run(2) == run(4)


def test_actions_beyond_the_bounds_are_clipped_before_the_cost():
    env = trellis.envs.make("HalfCheetah-v5", 2)
    env.reset(np.arange(2), np.zeros(2, int))
    step = env.step(np.array([[1.0] * 6, [50.0] * 6]))
    np.testing.assert_array_equal(step.observation[0], step.observation[1])
    assert step.reward[0] == step.reward[1]


def test_reset_accepts_any_order_and_no_environment():
    env = trellis.envs.make("Hopper-v5", 4)
    mixed = env.reset(np.array([2, 0]), np.array([7, 8]))
    plain = env.reset(np.array([1, 3]), np.array([8, 7]))
    np.testing.assert_array_equal(mixed, plain[::-1])
    assert env.reset(np.array([], int), np.array([], int)).shape == (0, 11)


def test_an_unknown_option_is_an_error_with_a_suggestion():
    with pytest.raises(TypeError, match="did you mean 'ctrl_cost_weight'"):
        MujocoBatch("Hopper-v5", v5.TASKS["Hopper-v5"], 1, ctrl_cost_wieght=0.1)


def test_a_missing_model_file_is_an_error():
    with pytest.raises(FileNotFoundError, match="no MuJoCo model"):
        trellis.envs.make("Hopper-v5", 1, xml_file="hoper.xml")


def test_a_snapshot_of_another_task_is_an_error():
    snapshot = trellis.envs.make("Walker2d-v5", 1).snapshot(np.arange(1))
    with pytest.raises(ValueError, match="another task"):
        trellis.envs.make("Hopper-v5", 1).restore(np.arange(1), snapshot)


def test_a_custom_model_by_path(tmp_path):
    text = (ASSETS / "hopper.xml").read_text().replace('timestep="0.002"', 'timestep="0.001"')
    (tmp_path / "mine.xml").write_text(text)
    env = trellis.envs.make("Hopper-v5", 1, xml_file=str(tmp_path / "mine.xml"))
    assert isinstance(env, MujocoBatch)
    assert env.seconds_per_step == pytest.approx(0.004)


RENDER = """
import numpy as np
import trellis.envs
env = trellis.envs.make("trellis/PaperHopper-v0", 2)
env.reset(np.arange(2), np.arange(2))
one = env.render(0)
assert one.shape == (480, 480, 3) and one.dtype == np.uint8 and one.std() > 10
for _ in range(60):
    env.step(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))
assert (env.render(0) != one).mean() > 0.01 and env.render(1, 64, 32).shape == (32, 64, 3)
env.close()
"""


def render_with(gl: str) -> subprocess.CompletedProcess[str]:
    # MuJoCo reads MUJOCO_GL when it is imported, so this needs a separate process.
    return subprocess.run(
        [sys.executable, "-c", RENDER],
        env={**os.environ, "MUJOCO_GL": gl, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="no EGL here")
def test_renders_if_there_is_a_driver():
    done = render_with("egl")
    if "no OpenGL context" in done.stderr:
        pytest.skip("no EGL here")
    assert done.returncode == 0, done.stderr


def test_the_error_without_a_driver_says_what_to_do():
    done = render_with("disable")
    assert done.returncode != 0
    assert "MUJOCO_GL=egl" in done.stderr
