"""Tests of memory together with masks, mixed actions and other Gaussians: F·v, KL and sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.policies.test_gaussians import CASES, MASKED
from trellis.config import PolicyConfig
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator, gradient_and_outputs, sum_evaluation
from trellis.optimization.fisher import fisher_operator
from trellis.optimization.rules import Curvature
from trellis.policies import Sequences, build_policy

SEQUENCES, LENGTH = 3, 4
N = SEQUENCES * LENGTH
cases = pytest.mark.parametrize("case", CASES)
pytestmark = pytest.mark.slow


def problem(case, memory="gru", dtype=np.float64):
    """Return a policy with memory, θ, and sequences that were played step by step in NumPy."""
    observation_space, action_space, options = CASES[case]
    config = PolicyConfig(hidden=(3,), memory=memory, memory_units=2, **options)
    policy, rng = build_policy(config, observation_space, action_space), np.random.default_rng(5)
    theta = (rng.normal(size=policy.num_params) * 0.7).astype(dtype)
    observation = rng.normal(size=(SEQUENCES, LENGTH, 3))
    if observation_space is MASKED:
        masks = np.ones((SEQUENCES, LENGTH, 12))
        masks[..., [1, 3, 8, 11]] = rng.integers(2, size=(SEQUENCES, LENGTH, 4))
        observation = np.concatenate([observation, masks], axis=-1)
    observation = observation.astype(dtype)
    starts = np.zeros((SEQUENCES, LENGTH), bool)
    starts[0, 0] = starts[1, 2] = True  # An episode starts inside a sequence.
    first = (rng.normal(size=(SEQUENCES, policy.carry_size)) * 0.5).astype(dtype)
    carry, action, log_q, distribution = first, [], [], policy.distribution
    for t in range(LENGTH):
        carry = np.where(starts[:, t, None], 0.0, carry).astype(dtype)
        params, carry = policy.distribution_params(theta, observation[:, t], carry)
        action.append(distribution.sample(params, distribution.noise(rng, (SEQUENCES,))))
        log_q.append(distribution.log_prob(params, action[-1]))
    weight = rng.uniform(0.5, 1.5, size=N).astype(dtype)
    batch = StateBatch(
        Sequences(observation.reshape(N, -1), starts.ravel(), first),
        np.stack(action, 1).reshape(N, 1, -1),
        np.stack(log_q, 1).reshape(N, 1).astype(dtype),
        weight[:, None],
        weight,
        weight[::-1].copy(),
    )
    return policy, theta, batch, rng


@cases
@pytest.mark.usefixtures("x64")
def test_fisher_product_is_the_dense_hessian_of_the_mean_kl(case):
    policy, theta, batch, rng = problem(case)

    def sum_kl(new):
        old, _ = policy.distribution_params(jnp.asarray(theta), batch.observation)
        params, _ = policy.distribution_params(new, batch.observation)
        return jnp.sum(batch.kl_weight * policy.distribution.kl(old=old, new=params))

    v = rng.normal(size=policy.num_params)
    expected = np.asarray(jax.jit(jax.hessian(sum_kl))(theta)) @ v
    chunks = cut(batch, 2 * LENGTH, 2, np.float64)
    product = fisher_operator(policy, Curvature.ANALYTIC, jnp.asarray(theta), chunks)(v)
    assert np.linalg.norm(product - expected) < 1e-6 * np.linalg.norm(expected)


@cases
def test_kl_of_equal_parameters_is_zero_and_log_probabilities_are_those_of_sampling(case):
    policy, theta, batch, _ = problem(case, "lstm", np.float32)
    chunks = cut(batch, 2 * LENGTH, 2, np.float32)

    @jax.jit
    def evaluate(old, new):
        params, _ = policy.distribution_params(old, batch.observation)
        log_prob = policy.distribution.log_prob(params, batch.action[:, 0])
        _, outputs = gradient_and_outputs(policy, Estimator.IMPORTANCE, old, chunks)
        sums = sum_evaluation(policy, Estimator.IMPORTANCE, old, new, chunks, outputs)
        return log_prob, (sums.kl, sums.max_kl)

    log_prob, kl = evaluate(theta, theta.copy())
    assert kl == (0.0, 0.0)
    np.testing.assert_allclose(log_prob, batch.log_q[:, 0], rtol=2e-5, atol=2e-5)
