"""Tests of the baselines of single paths without a critic (Sec. 5.1)."""

import numpy as np
import pytest

from trellis.config import EstimationConfig, SamplingConfig, TrainConfig
from trellis.estimation.advantages import estimate, state_batch, subtract_time_baseline
from trellis.sampling.samples import Samples


def samples_of(reward, age, ended):
    times, envs = reward.shape
    nothing = np.zeros((times, envs, 1), np.float32)
    return Samples(
        observation=nothing,
        raw_observation=nothing,
        action=nothing,
        log_q=np.zeros((times, envs), np.float32),
        reward=reward,
        terminated=np.zeros_like(ended),
        truncated=ended,
        age=age,
        final_at=np.argwhere(ended),
        final_observation=nothing[0],
        last_observation=nothing[0],
        episode_return=np.zeros(0),
        episode_length=np.zeros(0, int),
    )


def advantages(samples, **settings):
    settings = EstimationConfig(critic="none", **settings)
    values, estimated = estimate(samples, None, None, settings, rng=np.random.default_rng(0))
    return state_batch(samples, values, estimated.values, settings).value.reshape(values.shape)


def test_the_mean_of_the_other_paths_is_subtracted():
    rng = np.random.default_rng(1)
    q, age = rng.normal(size=(30, 4)), rng.integers(0, 20, size=(30, 4))
    expected = np.empty_like(q)
    for place in np.ndindex(q.shape):
        same = age == age[place]
        same[place] = False
        expected[place] = q[place] - (q[same].mean() if same.any() else q[place])
    np.testing.assert_allclose(subtract_time_baseline(q, age), expected, atol=1e-12)


@pytest.mark.parametrize(("baseline", "is_zero"), [("time", True), ("constant", False)])
def test_truncation_leaves_no_noise_where_all_rewards_are_1(baseline, is_zero):
    """Every true advantage is 0, but returns are cut after 50 steps."""
    times, envs = 50, 6
    age = np.tile(np.arange(times)[:, None], envs)
    ended = age == times - 1
    samples = samples_of(np.ones((times, envs), np.float32), age, ended)
    found = advantages(samples, baseline=baseline, advantages="center")
    assert (np.abs(found).max() < 1e-4) == is_zero


def test_no_baseline_leaves_the_returns():
    rng = np.random.default_rng(2)
    age = np.tile(np.arange(8)[:, None], 3)
    samples = samples_of(rng.normal(size=(8, 3)).astype(np.float32), age, age == 7)
    raw = advantages(samples, advantages="raw")
    np.testing.assert_array_equal(advantages(samples, baseline="none", advantages="center"), raw)
    scaled = advantages(samples, baseline="none", advantages="standardize")
    np.testing.assert_allclose(scaled * raw.std(), raw, rtol=1e-5)


def test_the_gradient_stays_unbiased_in_a_bandit():
    """E[Â·∇log π] over many batches agrees with the exact gradient of a two-armed bandit."""
    rng = np.random.default_rng(3)
    paths, batches, p = 4, 40_000, 0.3
    action = rng.random((batches, paths)) < p
    reward = np.where(action, 2.0, -1.0) + 5.0
    score = np.where(action, 1 - p, -p)
    age = np.broadcast_to(np.arange(batches)[:, None], action.shape)  # Each batch is a time step.
    products = (subtract_time_baseline(reward, age) * score).mean(axis=1)
    exact = p * (1 - p) * 3.0
    error = products.std() / np.sqrt(batches)
    assert abs(products.mean() - exact) < 4 * error


@pytest.mark.parametrize(
    ("sampler", "critic"), [("vine", "none"), ("single-path", "mlp"), ("single-path", "linear")]
)
def test_a_baseline_that_would_be_ignored_is_refused(sampler, critic):
    with pytest.raises(ValueError, match="baseline must be constant"):
        TrainConfig(
            env="CartPole-v1",
            sampling=SamplingConfig(sampler=sampler),
            estimation=EstimationConfig(baseline="time", critic=critic),
        )
