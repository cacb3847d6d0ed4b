"""Tests of finite MDPs as Gymnasium environments and batches, and of the way back."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from trellis.envs.batch import Restorability
from trellis.theory.as_batch import to_batch
from trellis.theory.as_gymnasium import from_gymnasium, to_gymnasium
from trellis.theory.examples import chain, garnet, gridworld, random_policy
from trellis.theory.policy_iteration import optimal_performance


@pytest.mark.parametrize("one_hot", [False, True])
def test_gymnasium_accepts_it(one_hot):
    env = to_gymnasium(gridworld(), one_hot=one_hot, max_episode_steps=50)
    check_env(env, skip_render_check=True)


def test_gymnasium_episode_by_hand():
    mdp = gridworld("S.G", slip=0.0)
    env = to_gymnasium(mdp)
    observation, _ = env.reset(seed=0)
    assert observation == 0
    right = 1
    assert env.step(right)[:4] == (1, 0.0, False, False)
    assert env.step(right)[:4] == (2, 0.0, False, False)
    # The goal gives its reward in the step that leaves it, which ends the episode.
    assert env.step(right)[:4] == (3, 1.0, True, False)
    endless = to_gymnasium(chain(3), max_episode_steps=2)
    endless.reset(seed=0)
    assert [endless.step(0)[3] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("action_rewards", [False, True])
def test_batch_returns_have_the_performance_as_their_mean(action_rewards):
    rng = np.random.default_rng(0)
    mdp = garnet(6, 3, 3, rng, gamma=0.8, action_rewards=action_rewards)
    policy = random_policy(mdp, rng)
    num_envs, horizon = 4000, 120
    batch = to_batch(mdp, num_envs, one_hot=False)
    state = batch.reset(np.arange(num_envs), np.arange(num_envs))
    returns, visits = np.zeros(num_envs), np.zeros(mdp.num_states)
    for t in range(horizon):
        visits += 0.8**t * np.bincount(state, minlength=mdp.num_states) / num_envs
        action = (policy.cumsum(axis=1)[state] < rng.random(num_envs)[:, None]).sum(axis=1)
        state, reward, *_ = batch.step(np.minimum(action, 2))
        returns += 0.8**t * reward
    exact = mdp.evaluate(policy)
    error = returns.std() / np.sqrt(num_envs)
    assert abs(returns.mean() - exact.performance) < 4.0 * error < 0.2
    np.testing.assert_allclose(visits, exact.visitation, atol=0.06)


def test_batch_samples_with_the_transition_probabilities():
    mdp = garnet(5, 2, 4, np.random.default_rng(1))
    num_envs = 20_000
    batch = to_batch(mdp, num_envs, one_hot=False)
    first = batch.reset(np.arange(num_envs), np.arange(num_envs) + 7)
    np.testing.assert_allclose(np.bincount(first) / num_envs, mdp.rho0, atol=0.015)
    second = batch.step(np.ones(num_envs, int)).observation
    for s in range(5):
        frequencies = np.bincount(second[first == s], minlength=5) / (first == s).sum()
        np.testing.assert_allclose(frequencies, mdp.P[s, 1], atol=0.035)


def test_batch_restores_exactly_in_place_and_elsewhere():
    mdp = garnet(8, 3, 4, np.random.default_rng(2))
    batch, other = to_batch(mdp, 4, max_episode_steps=30), to_batch(mdp, 4, max_episode_steps=30)
    assert batch.restorability is Restorability.SERIALIZABLE
    everyone, actions = np.arange(4), np.array([0, 1, 2, 0])
    batch.reset(everyone, np.array([5, 6, 7, 8]))
    for _ in range(5):
        now = batch.step(actions).observation
    rows = batch.snapshot(everyone)
    future = [batch.step(actions) for _ in range(10)]
    np.testing.assert_array_equal(batch.restore(everyone, rows), now)
    turned = {name: values[::-1] for name, values in rows.items()}
    other.reset(everyone, np.zeros(4, int))
    np.testing.assert_array_equal(other.restore(everyone, turned), now[::-1])
    for step in future:
        again, mirrored = batch.step(actions), other.step(actions[::-1])
        for ours, theirs, turned_back in zip(step, again, mirrored, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(ours, turned_back[::-1])


def test_environments_with_the_same_stream_have_common_random_numbers():
    mdp = garnet(8, 3, 4, np.random.default_rng(2))
    batch = to_batch(mdp, 3, one_hot=False)
    everyone = np.arange(3)
    batch.reset(everyone, np.array([1, 1, 2]))
    batch.restore(everyone, {k: v[[0, 0, 0]] for k, v in batch.snapshot(everyone).items()})
    batch.reseed(everyone, np.array([9, 9, 10]))
    paths = np.array([batch.step(np.zeros(3, int)).observation for _ in range(20)])
    assert (paths[:, 0] == paths[:, 1]).all()
    assert (paths[:, 0] != paths[:, 2]).any()


def test_inactive_environments_do_not_change():
    mdp = gridworld("S.G", slip=0.0)
    batch = to_batch(mdp, 2, one_hot=False)
    batch.reset(np.arange(2), np.array([0, 1]))
    step = batch.step(np.array([1, 1]), np.array([True, False]))
    assert list(step.observation) == [1, 0]
    batch.step(np.array([1, 1]), np.array([True, False]))
    step = batch.step(np.array([1, 1]), np.array([True, False]))
    assert list(step.reward) == [1.0, 0.0]
    assert list(step.terminated) == [True, False]


def test_frozen_lake_becomes_an_mdp():
    mdp = from_gymnasium("FrozenLake-v1", gamma=0.99)
    assert mdp.num_states == 17
    # Known from value iteration in the literature: V*(start) at γ = 0.99.
    assert optimal_performance(mdp) == pytest.approx(0.5420, abs=1e-4)


def test_cliff_walking_costs_one_per_step():
    mdp = from_gymnasium(gymnasium.make("CliffWalking-v1"), gamma=0.9)
    # Thirteen steps along the cliff, each −1.
    assert optimal_performance(mdp) == pytest.approx(-(1.0 - 0.9**13) / 0.1)


def test_taxi_starts_where_gymnasium_does():
    mdp = from_gymnasium("Taxi-v4", gamma=0.9)
    assert mdp.num_states == 501
    assert mdp.rho0[-1] == 0.0
    assert (mdp.rho0 > 0.0).sum() == 300


def test_environments_without_a_table_are_an_error():
    with pytest.raises(ValueError, match="has no table of transitions"):
        from_gymnasium("CartPole-v1", gamma=0.9)


def test_theory_loads_without_gymnasium():
    code = (
        "import sys, trellis.theory, trellis.theory.conservative, trellis.theory.perturbation\n"
        "heavy = {'gymnasium', 'jax', 'matplotlib', 'mujoco'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
