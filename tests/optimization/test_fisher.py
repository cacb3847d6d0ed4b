"""Tests of F·v against dense matrices that are computed in another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.problems import POLICIES, random_batch, random_theta
from trellis.estimation.state_batch import cut
from trellis.optimization.fisher import choose_rows, fisher_operator
from trellis.optimization.rules import Curvature

KINDS = ("gaussian", "one factor", "factors")
WAYS = {"kept whole": (1 << 28, 37), "kept in chunks": (1 << 28, 10), "afresh": (0, 10)}
# Every combination is compiled: the fast suite has two kinds, and each way once.
FAST = [*((way, "gaussian") for way in WAYS), ("kept whole", "factors")]
products = pytest.mark.parametrize(
    ("policy", "budget", "chunk"),
    [
        pytest.param(
            *(POLICIES[kind], *WAYS[way]),
            id=f"{way}-{kind}",
            marks=[] if (way, kind) in FAST else pytest.mark.slow,
        )
        for kind in KINDS
        for way in WAYS
    ],
)


def setup(policy, seed=0, n=37):
    rng = np.random.default_rng(seed)
    theta = random_theta(policy, rng)
    return rng, theta, random_batch(policy, theta, n, rng)


@products
@pytest.mark.usefixtures("x64")
class TestAgainstDense:
    def test_analytic_is_the_hessian_of_the_mean_kl(self, policy, budget, chunk):
        rng, theta, batch = setup(policy)

        def mean_kl(new, old):
            kl = policy.distribution.kl(
                old=policy.distribution_params(old, batch.observation)[0],
                new=policy.distribution_params(new, batch.observation)[0],
            )
            return jnp.sum(batch.kl_weight * kl)

        hessian = jax.jit(jax.hessian(mean_kl))(theta, theta)
        product = compiled_product(policy, Curvature.ANALYTIC, theta, batch, chunk, budget)
        for v in rng.normal(size=(3, policy.num_params)):
            expected = hessian @ v
            error = np.linalg.norm(product(v) - expected) / np.linalg.norm(expected)
            assert error < 1e-6

    def test_empirical_is_the_second_moment_of_the_gradients(self, policy, budget, chunk):
        rng, theta, batch = setup(policy, seed=1)

        def log_prob(theta, observation, action):
            params, _ = policy.distribution_params(theta, observation[None])
            return policy.distribution.log_prob(params, action)[0]

        gradients = jax.jit(jax.vmap(jax.grad(log_prob), in_axes=(None, 0, 0)))(
            theta, batch.observation, batch.action
        )
        moment = gradients.T @ (batch.kl_weight[:, None] * gradients)
        product = compiled_product(policy, Curvature.EMPIRICAL, theta, batch, chunk, budget)
        v = rng.normal(size=policy.num_params)
        expected = moment @ v
        assert np.linalg.norm(product(v) - expected) < 1e-9 * np.linalg.norm(expected)


def compiled_product(policy, curvature, theta, batch, chunk, budget=1 << 28):
    capacity = -(-len(batch.kl_weight) // chunk) + 1

    @jax.jit
    def product(v, theta, chunks):
        return fisher_operator(policy, curvature, theta, chunks, residual_budget=budget)(v)

    return lambda v: product(v, theta, cut(batch, chunk, capacity, np.float64))


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
def test_analytic_and_empirical_agree_in_expectation():
    """The covariance of the scores, averaged over actions, is the Fisher matrix."""
    policy = POLICIES["one factor"]
    rng, theta, batch = setup(policy, n=40_000)
    v = rng.normal(size=policy.num_params)
    analytic, empirical = (
        compiled_product(policy, curvature, theta, batch, 40_000)(v)
        for curvature in (Curvature.ANALYTIC, Curvature.EMPIRICAL)
    )
    assert np.linalg.norm(analytic - empirical) < 0.05 * np.linalg.norm(analytic)


def test_the_subset_is_a_tenth_and_at_least_a_thousand():
    rng = np.random.default_rng(0)
    assert len(choose_rows(np.ones(50_000), 0.1, rng)) == 5_000
    assert len(choose_rows(np.ones(5_000), 0.1, rng)) == 1_000
    assert len(choose_rows(np.ones(600), 0.1, rng)) == 600


def test_the_subset_is_random_and_seeded_and_skips_states_of_weight_zero():
    weight = np.ones(20_000)
    weight[::2] = 0
    rows = choose_rows(weight, 0.1, np.random.default_rng(1))
    assert np.all(weight[rows] > 0)
    assert len(np.unique(rows)) == len(rows) == 1_000
    assert len(np.unique(np.diff(rows))) > 5  # no regular stride
    np.testing.assert_array_equal(rows, choose_rows(weight, 0.1, np.random.default_rng(1)))
    assert not np.array_equal(rows, choose_rows(weight, 0.1, np.random.default_rng(2)))
