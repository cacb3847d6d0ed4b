"""Tests of the baselines of single paths without a critic (Sec. 5.1)."""

import dataclasses

import numpy as np
import pytest

from tests.training.cases import CARTPOLE
from trellis import presets
from trellis.config import EstimationConfig
from trellis.estimation.advantages import estimate, state_batch
from trellis.estimation.baseline import TimeMoments
from trellis.moments import Moments
from trellis.sampling.samples import Samples
from trellis.training.reduction import merge_answers
from trellis.training.team import LocalTeam


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


def test_the_mean_of_the_other_environments_is_subtracted():
    q = np.random.default_rng(1).normal(size=(30, 4))
    expected = np.empty_like(q)
    for time, env in np.ndindex(q.shape):
        expected[time, env] = q[time, env] - np.delete(q[time], env).mean()
    moments = TimeMoments.of(q)
    np.testing.assert_allclose(moments.advantages(q), expected, atol=1e-12)
    direct = Moments.of(expected)
    np.testing.assert_allclose(moments.of_advantages.squares, direct.squares, rtol=1e-12)
    np.testing.assert_allclose(moments.of_advantages.mean, direct.mean, atol=1e-12)
    assert moments.of_advantages.count == direct.count
    assert not TimeMoments.of(q[:, :1]).advantages(q[:, :1]).any()


def test_shards_share_their_baseline():
    q = np.random.default_rng(1).normal(size=(30, 5))
    parts = [TimeMoments.of(q[:, part]) for part in (slice(0, 2), slice(2, 5))]
    for merged in (merge_answers(*parts), merge_answers(*parts[::-1])):
        whole = TimeMoments.of(q)
        for name in ("count", "mean", "squares"):
            np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), atol=1e-12)


def test_a_shard_of_one_path_is_compared_with_the_other_shards():
    estimation = EstimationConfig(critic="none", baseline="time", advantages="center")
    sampling = dataclasses.replace(CARTPOLE.sampling, num_envs=4, shards=4)
    team = LocalTeam(dataclasses.replace(CARTPOLE, sampling=sampling, estimation=estimation))
    policy = team.shards[0].model.policy
    theta = policy.init(np.random.default_rng(0))
    team.collect(theta, Moments.zeros((4,)), 0)
    values = team.estimate({}, 1.0).values
    found = np.stack([shard._batch(values).value[:, 0] for shard in team.shards], axis=1)
    q = np.concatenate([shard._values for shard in team.shards], axis=1)
    team.close()
    assert np.ptp(found) > 0
    np.testing.assert_allclose(found, TimeMoments.of(q).advantages(q), atol=1e-6)


def test_presets_of_the_paper_choose_the_baseline():
    assert presets.resolve("CartPole-v1", "paper/cartpole").estimation.baseline == "time"
    assert presets.resolve("CartPole-v1", "paper/cartpole-vine").estimation.baseline == "constant"
    assert EstimationConfig().baseline == "constant"  # Runs before 0.3.0 had no other.


@pytest.mark.parametrize(("baseline", "is_zero"), [("time", True), ("constant", False)])
def test_truncation_leaves_no_noise_where_all_rewards_are_1(baseline, is_zero):
    """Every true advantage is 0, but returns are cut after 50 steps."""
    times, envs = 50, 6
    age = np.tile(np.arange(times)[:, None], envs)
    ended = age == times - 1
    samples = samples_of(np.ones((times, envs), np.float32), age, ended)
    found = advantages(samples, baseline=baseline, advantages="center")
    assert (np.abs(found).max() < 1e-4) == is_zero


def test_a_path_that_follows_a_short_one_is_compared_at_equal_time_left():
    """All rewards are 1, and one path starts late: it has no advantage in what is left."""
    times, envs = 50, 6
    age = np.tile(np.arange(times)[:, None], envs)
    age[30:, 0] -= 30
    ended = np.zeros((times, envs), bool)
    ended[29, 0] = ended[-1] = True
    samples = samples_of(np.ones((times, envs), np.float32), age, ended)
    found = advantages(samples, baseline="time", advantages="center")
    np.testing.assert_allclose(found[30:], 0.0, atol=1e-4)
    assert (found[:30, 0] < -1).all()  # It ended early.


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
    # Each batch is a time step.
    products = (TimeMoments.of(reward).advantages(reward) * score).mean(axis=1)
    exact = p * (1 - p) * 3.0
    error = products.std() / np.sqrt(batches)
    assert abs(products.mean() - exact) < 4 * error
