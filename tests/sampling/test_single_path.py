"""Tests of single path: its records, and its estimates against exact quantities."""

import gymnasium as gym
import jax
import numpy as np
import pytest

from tests.probes import DelayedReward, Endless
from tests.problems import sum_gradient
from trellis import envs
from trellis.config import SamplingConfig
from trellis.estimation.returns import path_returns
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator
from trellis.policies.distributions import Categoricals
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.sampling.single_path import SinglePath
from trellis.spaces import observation_encoder
from trellis.theory import garnet
from trellis.theory.as_batch import to_batch


def make_sampler(env, steps, *, hidden=(), seed=0, whole_paths=False, **options):
    features, encode = observation_encoder(env.observation_space)
    policy = Policy(MLP(features, hidden, 2), Categoricals((2,)))
    sampling = SamplingConfig(steps_per_env=steps, whole_paths=whole_paths)
    return SinglePath(env, policy, encode, sampling, seed=seed, **options), policy


def same(x):
    return x


def test_episodes_follow_each_other_and_returns_are_summed():
    env = envs.make(DelayedReward, 3)
    sampler, policy = make_sampler(env, 25)
    samples, path = sampler.collect(np.zeros(policy.num_params, np.float32), same, None, 0)
    np.testing.assert_array_equal(samples.age[:, 0], np.arange(25) % 10)
    assert samples.terminated[9::10].all()
    assert samples.terminated.sum() == 6
    np.testing.assert_array_equal(samples.episode_length, 10)
    totals = samples.reward[:10].sum(0)
    np.testing.assert_array_equal(samples.episode_return[:3], totals)
    np.testing.assert_array_equal(path.age, 5)
    assert samples.observation.shape == (25, 3, 1)
    # The final observation of an episode differs from the first of the next one.
    assert samples.final_observation.shape == (6, 1)
    later, _ = sampler.collect(np.zeros(policy.num_params, np.float32), same, path, 1)
    np.testing.assert_array_equal(later.age[0], 5)
    np.testing.assert_array_equal(later.raw_observation[0], path.observation)


def test_whole_paths_start_new_episodes_in_every_iteration():
    env = envs.make(DelayedReward, 3)
    sampler, policy = make_sampler(env, 7, whole_paths=True)
    theta = np.zeros(policy.num_params, np.float32)
    _, path = sampler.collect(theta, same, None, 0)
    samples, _ = sampler.collect(theta, same, path, 1)
    np.testing.assert_array_equal(samples.age[0], 0)


def test_representative_episodes_are_not_biased_to_short_ones():
    class Coin(gym.Env):
        """Terminates in any step with probability 1/20."""

        observation_space = gym.spaces.Box(-1, 1, (1,))
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.05), False, {}

    env = envs.make(Coin, 2000, max_episode_steps=40)
    expected = (1 - 0.95**40) / 0.05
    sampler, policy = make_sampler(env, 40, whole_paths=True)
    samples, _ = sampler.collect(np.zeros(policy.num_params, np.float32), same, None, 0)
    counted = samples.episode_length[samples.representative(40)]
    assert len(counted) == 2000  # the first episode of each environment
    spread = counted.std() / np.sqrt(len(counted))
    assert abs(counted.mean() - expected) < 4 * spread
    assert samples.episode_length.mean() < expected - 10 * spread
    # With a limit longer than a path, all ended episodes count.
    for longest in (41, None):
        assert samples.representative(longest).all()
    # In a longer path, episodes that start a little later count too.
    begun = samples.final_at[:, 0] + 1 - samples.episode_length
    np.testing.assert_array_equal(samples.representative(30), begun <= 10)


def test_a_time_limit_is_a_truncation():
    env = envs.make(Endless, 2)
    sampler, policy = make_sampler(env, 12)
    samples, _ = sampler.collect(np.zeros(policy.num_params, np.float32), same, None, 0)
    assert not samples.terminated.any()
    assert samples.truncated[[4, 9]].all()
    assert samples.truncated.sum() == 4


def test_log_q_is_the_probability_of_the_sampled_action():
    env = envs.make("CartPole-v1", 4)
    sampler, policy = make_sampler(env, 30, hidden=(8,))
    theta = np.random.default_rng(0).normal(size=policy.num_params).astype(np.float32)
    samples, _ = sampler.collect(theta, same, None, 0)
    params, _ = policy.distribution_params(theta, samples.observation)
    expected = policy.distribution.log_prob(params, samples.action)
    np.testing.assert_allclose(samples.log_q, expected, rtol=1e-5)
    share = np.mean(samples.action == policy.distribution.mode(params))
    assert 0.5 < share < 1.0


def test_samples_depend_on_the_seed_alone():
    def collect(seed, iteration=0):
        env = envs.make("CartPole-v1", 4)
        sampler, policy = make_sampler(env, 20, seed=seed)
        return sampler.collect(np.zeros(policy.num_params, np.float32), same, None, iteration)[0]

    one, again, other, later = collect(1), collect(1), collect(2), collect(1, iteration=1)
    for field, again_field in zip(one, again, strict=True):
        np.testing.assert_array_equal(field, again_field)
    assert not np.array_equal(one.action, other.action)
    assert not np.array_equal(one.action, later.action)


@pytest.mark.parametrize("rows", [8, 32, 33, 256])
@pytest.mark.parametrize("hidden", [(64, 64), (50, 50), (30,)])
def test_an_environment_does_not_depend_on_its_neighbours(rows, hidden):
    """At a fixed batch size, the other environments must not change a bit of this one."""
    network = MLP(11, hidden, 3)
    rng = np.random.default_rng(0)
    weights = [w.astype(np.float32) for w in network.init(rng)]
    x = rng.normal(size=(rows, 11)).astype(np.float32)
    full = network.apply(weights, x)
    for kept in (0, rows // 2, rows - 1):
        others = rng.normal(size=x.shape).astype(np.float32) * 100
        others[kept] = x[kept]
        assert network.apply(weights, others)[kept].tobytes() == full[kept].tobytes()


def test_single_path_gradients_are_unbiased_on_a_finite_mdp():
    """The mean of the gradient estimate with γᵗ weights is the exact ∇L, by z-tests.

    Paths are long enough for what is cut off to be far below the noise.
    """
    mdp = garnet(6, 2, branching=3, gamma=0.7, rng=np.random.default_rng(0))
    steps, paths, repeats = 40, 400, 30
    env = to_batch(mdp, paths)
    features, encode = observation_encoder(env.observation_space)
    policy = Policy(MLP(features, (), 2), Categoricals((2,)))
    theta = (0.5 * np.random.default_rng(1).normal(size=policy.num_params)).astype(np.float32)
    logits, _ = policy.distribution_params(theta, np.eye(6, dtype=np.float32))
    pi = np.exp(logits.astype(np.float64))
    pi /= pi.sum(1, keepdims=True)

    exact = exact_gradient(mdp, pi, policy)
    sampling = SamplingConfig(steps_per_env=steps, whole_paths=True)
    sampler = SinglePath(env, policy, encode, sampling, seed=3)
    compiled = jax.jit(sum_gradient, static_argnums=(0, 1))
    estimates = []
    for iteration in range(repeats):
        samples, _ = sampler.collect(theta, same, None, iteration)
        q = path_returns(samples.reward, samples, mdp.gamma)
        n = q.size
        weight = (mdp.gamma**samples.age).reshape(n).astype(np.float32)
        batch = StateBatch(
            samples.observation.reshape(n, -1),
            samples.action.reshape(n, 1, -1),
            samples.log_q.reshape(n, 1),
            q.reshape(n, 1),
            weight,
            weight,
        )
        sums = compiled(policy, Estimator.IMPORTANCE, theta, cut(batch, n, 1, np.float32))
        estimates.append(np.asarray(sums.gradient) / paths)
    estimates = np.array(estimates)
    error = estimates.std(0, ddof=1) / np.sqrt(repeats)
    z = (estimates.mean(0) - exact) / error
    assert np.max(np.abs(z)) < 4.0
    assert (
        np.max(np.abs(exact) / error) > 8.0
    )  # the test has enough power to detect a wrong gradient


def exact_gradient(mdp, pi, policy):
    """Return ∇L at π_old for a softmax policy: ρ(s)·π(a|s)·A(s, a), times the linear map."""
    evaluation = mdp.evaluate(pi)
    rho, advantage = evaluation.visitation, evaluation.advantages
    by_logit = rho[:, None] * pi * advantage
    return np.concatenate([by_logit.ravel(), by_logit.sum(0)])
