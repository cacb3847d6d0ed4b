"""Tests of segments: the rewards of many steps at once have the bits of rewards of single steps."""

import numpy as np
import pytest

from trellis import envs
from trellis.envs.errors import BadValueError
from trellis.envs.mujoco.batch import MujocoBatch
from trellis.envs.mujoco.v5 import TASKS

STEPS, ENVS = 60, 5
DEFERRING = [name for name, task in TASKS.items() if task.terminated is not None]


def mujoco(env_id, **options):
    env = envs.make(env_id, ENVS, **options)
    assert isinstance(env, MujocoBatch)
    env.reset(np.arange(ENVS), np.arange(ENVS))
    return env


def actions_of(env):
    shape = STEPS, ENVS, *env.action_space.shape
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_the_tasks_with_segments():
    assert DEFERRING == ["Swimmer-v5", "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"]
    assert mujoco("Reacher-v5").segment(STEPS) is None


@pytest.mark.parametrize(
    ("env_id", "options"),
    [(name, {}) for name in DEFERRING]
    + [
        ("Hopper-v5", {"max_episode_steps": 7, "forward_reward_weight": 0.3}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "max_episode_steps": -1}),
    ],
)
def test_a_segment_has_the_bits_of_single_steps(env_id, options):
    one, other = mujoco(env_id, **options), mujoco(env_id, **options)
    segment, actions, rewards = one.segment(STEPS), actions_of(one), []
    assert segment is not None
    for t, action in enumerate(actions):
        ours, theirs = segment.step(action), other.step(action)
        rewards.append(theirs.reward)
        for name in ("observation", "terminated", "truncated"):
            assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes()
        ended = np.flatnonzero(theirs.terminated | theirs.truncated)
        for env in (one, other):
            env.reset(ended, 100 * t + ended)
    assert segment.rewards(actions).tobytes() == np.stack(rewards).tobytes()
    everyone = np.arange(ENVS)
    ours, theirs = one.snapshot(everyone), other.snapshot(everyone)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_reward_that_is_not_finite_is_reported_at_the_end():
    env = mujoco("Hopper-v5", healthy_reward=np.inf)
    segment, actions = env.segment(STEPS), actions_of(env)
    assert segment is not None
    segment.step(actions[0])
    with pytest.raises(BadValueError, match="reward is not finite"):
        segment.rewards(actions[:1])


def test_a_subclass_that_steps_differently_has_no_segment():
    class Counting(MujocoBatch):
        def _step(self, actions, active):
            return super()._step(actions, active)

    env = mujoco("Hopper-v5")
    assert Counting(env.env_id, env.task, ENVS).segment(STEPS) is None


def test_an_action_that_is_not_finite_is_reported_in_its_step():
    messages = []
    for segmented in (False, True):
        env = mujoco("Hopper-v5")
        steps = env.segment(STEPS) if segmented else env
        actions = actions_of(env)
        assert steps is not None
        steps.step(actions[0])
        actions[1, 3] = np.nan
        with pytest.raises(BadValueError, match="reward is not finite") as caught:
            steps.step(actions[1])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
