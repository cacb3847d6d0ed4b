"""Tests of returns and advantages against sums written out step by step."""

import numpy as np
import pytest

from trellis.estimation.returns import (
    discounted_sums,
    gae,
    path_returns,
    running_returns,
    successor_values,
)
from trellis.sampling.samples import Samples

T, N, GAMMA, LAM = 12, 5, 0.9, 0.8


def make_samples(seed=0):
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, T, N)) < 0.15
    ended = terminated | truncated
    final_at = np.argwhere(ended)
    nothing = np.zeros((T, N))
    return Samples(
        *[nothing] * 4,
        reward=rng.normal(size=(T, N)),
        terminated=terminated,
        truncated=truncated,
        age=nothing,
        final_at=final_at,
        final_observation=nothing,
        last_observation=nothing,
        episode_return=nothing,
        episode_length=nothing,
    )


@pytest.fixture
def problem():
    samples, rng = make_samples(), np.random.default_rng(1)
    assert samples.terminated.any()
    assert (samples.truncated & ~samples.terminated).any()
    value = rng.normal(size=(T, N))
    final_value = rng.normal(size=len(samples.final_at))
    samples = samples._replace(final_observation=final_value, last_observation=rng.normal(size=N))
    return samples, value, successor_values(samples, value, lambda observation, age: observation)


def test_discounted_sums_follow_the_recurrence():
    rng = np.random.default_rng(2)
    x, decay = rng.normal(size=(2, 4, 2)).astype(np.float32)
    y = np.zeros((5, 2))
    for t in reversed(range(4)):
        y[t] = x[t] + decay[t] * y[t + 1]
    np.testing.assert_allclose(discounted_sums(x, decay), y[:4], rtol=1e-5)


def test_successor_values_differ_for_termination_and_truncation(problem):
    samples, value, successor = problem
    at_ends = zip(samples.final_at, samples.final_observation, strict=True)
    finals = {tuple(at): v for at, v in at_ends}
    for t in range(T):
        for i in range(N):
            if samples.terminated[t, i]:
                expected = 0.0
            elif samples.truncated[t, i]:
                expected = finals[t, i]
            else:
                expected = samples.last_observation[i] if t == T - 1 else value[t + 1, i]
            np.testing.assert_allclose(successor[t, i], expected, rtol=1e-6)


@pytest.mark.parametrize("horizon", [None, 1, 3, T - 1, T + 5])
def test_path_returns_are_discounted_sums_to_the_end_of_the_path(problem, horizon):
    samples, _, _ = problem
    result = path_returns(samples.reward, samples, GAMMA, horizon)
    for i in range(N):
        for t in range(T):
            total, discount = 0.0, 1.0
            for k in range(t, T if horizon is None else min(T, t + horizon)):
                total += discount * samples.reward[k, i]
                discount *= GAMMA
                if samples.ended[k, i]:
                    break
            np.testing.assert_allclose(result[t, i], total, rtol=1e-5, atol=1e-5)


def test_gae_is_the_sum_of_discounted_residuals(problem):
    samples, value, successor = problem
    result = gae(samples.reward, samples, value, successor, GAMMA, LAM)
    delta = samples.reward + GAMMA * successor - value
    for i in range(N):
        for t in range(T):
            total, discount = 0.0, 1.0
            for k in range(t, T):
                total += discount * delta[k, i]
                discount *= GAMMA * LAM
                if samples.ended[k, i]:
                    break
            np.testing.assert_allclose(result[t, i], total, rtol=1e-4, atol=1e-5)


def test_gae_with_lambda_one_is_the_return_minus_the_value(problem):
    samples, value, successor = problem
    advantage = gae(samples.reward, samples, value, successor, GAMMA, 1.0)
    stops = samples.ended.copy()
    stops[-1] = True
    returns = path_returns(samples.reward + stops * GAMMA * successor, samples, GAMMA)
    np.testing.assert_allclose(advantage, returns - value, rtol=1e-4, atol=1e-5)


def test_running_returns_restart_after_an_episode():
    samples, before = make_samples(3), np.arange(N) * 1.0
    result = running_returns(samples.reward, samples.ended, before, GAMMA)
    running = before.copy()
    for t in range(T):
        running = samples.reward[t] + GAMMA * running
        np.testing.assert_allclose(result[t], running, rtol=1e-4, atol=1e-5)
        running = np.where(samples.ended[t], 0.0, running)
