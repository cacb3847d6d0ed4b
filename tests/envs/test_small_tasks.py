"""Compares Gymnasium's small environments with their batches, bit for bit."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import trellis.envs
from tests.envs import contract
from trellis.envs.batch import leaves
from trellis.envs.gym.batch import GymBatch
from trellis.envs.gym.make import make_gym

MAP = ["SFFS", "FHFF", "FFGF"]
TASKS = [
    ("Acrobot-v1", {}),
    ("MountainCar-v0", {}),
    ("MountainCar-v0", {"goal_velocity": 0.01}),
    ("MountainCarContinuous-v0", {}),
    ("Pendulum-v1", {}),
    ("Pendulum-v1", {"g": 9.81}),
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"desc": MAP, "success_rate": 0.6, "reward_schedule": (2, -1, 0.5)}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalking-v1", {"is_slippery": True}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True, "fickle_probability": 0.9}),
    ("Blackjack-v1", {}),
    ("Blackjack-v1", {"natural": True, "sab": False}),
]
ROWS, STEPS = 4, 50


def actions_of(env, rng: np.random.Generator, observation) -> np.ndarray:
    """Return actions that also reach rare states: goals, bounds, and a passenger in the taxi."""
    actions = contract.random_actions(env, rng)
    if env.env_id.startswith("MountainCar"):
        right = observation[:, 1] >= 0
        discrete = actions.ndim == 1
        return np.where(right, 2, 0) if discrete else np.where(right, 1.3, -1.3)[:, None]
    if env.env_id == "Taxi-v4":
        place = np.isin(observation // 20, (0, 4, 20, 23))
        aboard = observation // 4 % 5 == 4
        return np.where(place & ~aboard, 4, np.where(rng.random(len(actions)) < 0.9, actions, 5))
    return actions


def without_mask(observation):
    """Return an observation without the mask that Taxi has in its info; our batch has none."""
    parts = observation.spaces if isinstance(observation, spaces.Dict) else observation
    return parts["observation"] if isinstance(parts, dict) else parts


@pytest.mark.parametrize(("env_id", "options"), TASKS, ids=str)
def test_equals_gymnasium_bit_for_bit(env_id, options):
    rng, everyone = np.random.default_rng(0), np.arange(ROWS)
    ours = trellis.envs.make(env_id, ROWS, max_episode_steps=40, **options)
    theirs = make_gym(env_id, ROWS, max_episode_steps=40, **options)
    assert not isinstance(ours, GymBatch)
    assert ours.observation_space == without_mask(theirs.observation_space)
    assert ours.action_space == theirs.action_space
    first, expected = ours.reset(everyone, everyone), theirs.reset(everyone, everyone)
    assert contract.same(first, without_mask(expected))
    observation, next_seed, rewards = first, ROWS, set()
    for _ in range(STEPS):
        actions = actions_of(ours, rng, observation)
        step, wanted = ours.step(actions), theirs.step(actions)
        wanted = wanted._replace(observation=without_mask(wanted.observation))
        contract.assert_same_step(step, wanted, "from Gymnasium")
        rewards |= set(step.reward.tolist())
        observation = [leaf.copy() for leaf in leaves(step.observation)]
        ended = np.flatnonzero(step.terminated | step.truncated)
        if ended.size:
            seeds = np.arange(next_seed, next_seed + ended.size)
            next_seed += ended.size
            new = ours.reset(ended, seeds)
            assert contract.same(new, without_mask(theirs.reset(ended, seeds)))
            for leaf, part in zip(observation, leaves(new), strict=True):
                leaf[ended] = part
        observation = observation[0]
    assert next_seed > ROWS
    if "natural" in options:
        assert 1.5 in rewards


def test_default_time_limits_are_those_of_the_registration():
    for env_id in {env_id for env_id, _ in TASKS}:
        limit = gymnasium.spec(env_id).max_episode_steps
        assert trellis.envs.make(env_id, 1).max_episode_steps == limit


def test_mountain_car_reaches_its_goal_as_in_gymnasium():
    for env_id in ("MountainCar-v0", "MountainCarContinuous-v0"):
        ours, theirs = trellis.envs.make(env_id, 2), make_gym(env_id, 2)
        observation = ours.reset(np.arange(2), np.arange(2))
        assert contract.same(observation, theirs.reset(np.arange(2), np.arange(2)))
        for _ in range(200):
            actions = actions_of(ours, np.random.default_rng(0), observation)
            step, wanted = ours.step(actions), theirs.step(actions)
            contract.assert_same_step(step, wanted, "from Gymnasium")
            observation = step.observation
            if step.terminated.any():
                break
        assert step.terminated.any()


def test_pictures_show_the_state():
    for env_id in {env_id for env_id, _ in TASKS}:
        env = trellis.envs.make(env_id, 2, render_mode="rgb_array")
        env.reset(np.arange(2), np.array([0, 5]))
        before = env.render(0)
        assert before.dtype == np.uint8
        assert before.ndim == 3
        assert not any(size % 2 for size in before.shape[:2])  # Video encoders need even sizes.
        changed = False
        for action in contract.random_actions(env, np.random.default_rng(1), 5):
            env.step(action)
            changed |= bool((env.render(0) != before).any())
        assert changed, env_id


def test_other_options_use_gymnasiums_own_objects():
    assert isinstance(trellis.envs.make("FrozenLake-v1", 1, map_name=None), GymBatch)
    assert isinstance(trellis.envs.make("Pendulum-v1", 1, render_mode="ansi"), GymBatch)


def test_an_invalid_option_is_named():
    with pytest.raises(trellis.envs.EnvRaisedError, match=r"FrozenLake-v1: .*KeyError: '9x9'"):
        trellis.envs.make("FrozenLake-v1", 2, map_name="9x9")


@pytest.mark.parametrize(
    ("env_id", "number"),
    [
        ("Taxi-v4", 500),
        ("Blackjack-v1", 40),
        ("Acrobot-v1", 30.0),
        ("Pendulum-v1", 1e30),
        ("Hopper-v5", 1e11),
        ("trellis/PendulumNoVelocity-v0", 1e30),
        ("trellis/HopperNoVelocity-v0", 1e11),
    ],
)
def test_an_impossible_snapshot_is_refused(env_id, number):
    """Acrobot, for one, would subtract 2π from 1e30 for ever."""
    env = trellis.envs.make(env_id, 1)
    env.reset(np.arange(1), np.arange(1))
    snapshot = dict(env.snapshot(np.arange(1)))
    env.require_possible(snapshot)
    snapshot["state"] = snapshot["state"] + number
    with pytest.raises(ValueError, match=f"not a snapshot of {env_id}"):
        env.require_possible(snapshot)


def test_a_generator_that_holds_more_than_half_a_word_is_refused():
    env = trellis.envs.make("Taxi-v4", 1)
    env.reset(np.arange(1), np.arange(1))
    snapshot = dict(env.snapshot(np.arange(1)))
    words = snapshot["generator"] = snapshot["generator"].copy()
    words[:, 5] = 2**32 - 1
    env.require_possible(snapshot)
    words[:, 5] = 2**32
    with pytest.raises(ValueError, match="not a snapshot of Taxi-v4"):
        env.require_possible(snapshot)


def test_a_new_seed_changes_the_future_but_not_the_state():
    env = trellis.envs.make("FrozenLake8x8-v1", 2)
    env.reset(np.arange(2), np.zeros(2, int))
    env.reseed(np.array([1]), np.array([99]))
    twin = np.random.default_rng(99)
    assert env.step(np.array([2, 2])).observation.shape == (2,)
    assert env._streams.random(np.array([1]))[0] == twin.random(2)[1]
