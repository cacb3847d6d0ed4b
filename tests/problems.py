"""Provides random policies and batches that several tests share."""

import numpy as np

from trellis.estimation.state_batch import StateBatch
from trellis.estimation.surrogate import gradient_and_outputs
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy

POLICIES = {
    "gaussian": Policy(MLP(4, (8,), 2), DiagGaussian(2)),
    "gaussian, linear": Policy(MLP(4, (), 1), DiagGaussian(1)),
    "one factor": Policy(MLP(4, (8, 6), 3), Categoricals((3,))),
    "factors": Policy(MLP(4, (8,), 8), Categoricals((3, 3, 2))),
}


def sum_gradient(policy, estimator, theta, chunks):
    """Return L and ∇L at θ_old, as sums over the states."""
    return gradient_and_outputs(policy, estimator, theta, chunks)[0]


def random_theta(policy, rng, scale=0.5):
    return rng.normal(size=policy.num_params) * scale


def random_batch(policy, theta, n, rng, *, actions=1, dtype=np.float64, weights=True):
    """Return random states with actions sampled from the policy, and random values."""
    inputs = policy.network.inputs
    observation = rng.normal(size=(n, inputs))
    params, _ = policy.distribution_params(theta, observation)
    drawn, log_q = [], []
    for _ in range(actions):
        action = policy.distribution.sample(params, policy.distribution.noise(rng, (n,)))
        drawn.append(action)
        log_q.append(policy.distribution.log_prob(params, action))
    action, log_q = np.stack(drawn, 1), np.stack(log_q, 1)
    value = np.tanh(action[..., 0] * 1.0) + rng.normal(size=(n, actions))
    weight = rng.uniform(0.2, 1.5, size=n) if weights else np.ones(n)
    # The sums of the weights differ, as with vine.
    batch = StateBatch(observation, action, log_q, value, weight, 2.5 * weight[::-1])
    return StateBatch(*(leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf for leaf in batch))
