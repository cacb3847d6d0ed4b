"""Tests of the tasks that need memory: hidden velocities, T-maze and repeat."""

import gymnasium
import numpy as np
import pytest

from trellis.envs import make
from trellis.envs.without_velocity import HIDDEN


@pytest.mark.parametrize("env_id", HIDDEN)
def test_only_the_velocities_are_hidden(env_id):
    whole_id, _ = HIDDEN[env_id]
    positions = {"CartPole-v1": [0, 2], "Pendulum-v1": [0, 1], "Hopper-v5": range(5)}
    visible = list(positions.get(whole_id, range(8)))
    seen, whole = make(env_id, 2), make(whole_id, 2)
    ids, seeds = np.arange(2), np.array([3, 4])
    assert (seen.reset(ids, seeds) == whole.reset(ids, seeds)[:, visible]).all()
    rng = np.random.default_rng(0)
    for _ in range(5):
        shape = seen.action_space.shape
        action = rng.normal(size=(2, *shape)) if shape else rng.integers(2, size=2)
        one, other = seen.step(action), whole.step(action)
        assert (one.observation == other.observation[:, visible]).all()
        assert (one.reward == other.reward).all()
    assert seen.observation_space.shape == (len(visible),)
    assert seen.observation_space.contains(one.observation[0])
    assert seen.max_episode_steps == whole.max_episode_steps
    seen.close(), whole.close()


def play_maze(turns, length=4):
    """Return sides, observations, rewards and ends of mazes walked straight to the end."""
    batch = make("trellis/TMaze-v0", 2, length=length)
    first = batch.reset(np.arange(2), np.array([0, 1]))
    seen = [first]
    for _ in range(length):
        step = batch.step(np.array([2, 2]))
        assert not step.terminated.any()
        assert not step.reward.any()
        seen.append(step.observation)
    return first[:, 0], seen, batch.step(turns(first[:, 0]))


def test_the_maze_shows_its_sign_once_and_rewards_the_right_turn():
    sides, seen, end = play_maze(lambda sides: np.where(sides > 0, 1, 0))
    assert set(np.abs(sides)) == {1.0}
    assert (end.reward == 1).all()
    assert end.terminated.all()
    assert not np.stack(seen[1:])[:, :, 0].any()
    assert [bool(s[0, 2]) for s in seen] == [False] * 4 + [True]
    _, _, wrong = play_maze(lambda sides: np.where(sides > 0, 0, 1))
    assert (wrong.reward == 0).all()
    assert wrong.terminated.all()


def test_bumping_into_a_wall_costs_and_both_sides_are_equally_likely():
    batch = make("trellis/TMaze-v0", 400, length=2)
    first = batch.reset(np.arange(400), np.arange(400))
    assert abs((first[:, 0] > 0).mean() - 0.5) < 0.1
    np.testing.assert_allclose(batch.step(np.zeros(400, int)).reward, -0.05)


def episode(env, forward=0):
    """Return how an episode ends, (steps, terminated, truncated), after some steps forward."""
    env.reset(seed=0)
    for steps in range(1, 2000):
        _, _, terminated, truncated, _ = env.step(2 if steps <= forward else 0)
        if terminated or truncated:
            return steps, terminated, truncated
    return None


@pytest.mark.parametrize(
    ("env_id", "options", "forward", "end"),
    [
        ("trellis/TMaze-v0", {}, 0, (60, False, True)),
        ("trellis/TMaze-v0", {"max_episode_steps": 500}, 0, (500, False, True)),
        ("trellis/TMaze-v0", {"max_episode_steps": -1}, 0, None),
        ("trellis/TMaze-v0", {"length": 100, "max_episode_steps": 300}, 100, (101, True, False)),
        ("trellis/Repeat-v0", {}, 0, (11, True, True)),
        ("trellis/Repeat-v0", {"delay": 100}, 0, (101, True, True)),
        ("trellis/Repeat-v0", {"max_episode_steps": 5}, 0, (5, False, True)),
    ],
)
def test_time_limits_in_gymnasium(env_id, options, forward, end):
    assert episode(gymnasium.make(env_id, **options), forward) == end


def test_a_time_limit_that_is_too_short_for_the_maze_is_a_warning():
    """The registered limit is a constant, so it does not know the length."""
    words = "TMaze-v0 takes at least 101 steps .* episodes end after 60: pass a larger max_episode"
    env = gymnasium.make("trellis/TMaze-v0", length=100)
    assert episode(env) == (60, False, True)
    with pytest.warns(UserWarning, match=words):
        env.reset()
    with pytest.warns(UserWarning, match=words):
        gymnasium.make_vec("trellis/TMaze-v0", num_envs=2, length=100)


@pytest.mark.filterwarnings("error")
def test_a_time_limit_that_is_long_enough_is_no_warning():
    env = gymnasium.make("trellis/TMaze-v0", length=59)
    assert episode(env, forward=59) == (60, True, True)
    env.reset()
    gymnasium.make_vec("trellis/TMaze-v0", num_envs=2, length=100, max_episode_steps=101)


def test_repeat_rewards_the_symbol_after_the_delay_only():
    batch = make("trellis/Repeat-v0", 200)
    first = batch.reset(np.arange(200), np.arange(200))
    symbol = first[:, :4].argmax(axis=1)
    assert (np.bincount(symbol, minlength=4) > 30).all()
    for t in range(11):
        step = batch.step(symbol)
        assert (step.reward == (t == 10)).all()
        assert (step.terminated == (t == 10)).all()
        if t < 10:
            assert not step.observation[:, :4].any()
            assert (step.observation[:, 4] == (t == 9)).all()
