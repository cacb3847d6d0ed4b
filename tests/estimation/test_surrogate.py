"""Tests of the objective against dense formulas and against exact enumeration."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import problems
from tests.policies import test_gaussians, test_masked
from tests.problems import POLICIES, random_batch, random_theta
from trellis.estimation import surrogate as objective
from trellis.estimation.state_batch import Chunks, StateBatch, cut
from trellis.estimation.surrogate import Estimator, surrogate_gains, surrogate_values
from trellis.optimization.objective import LocalObjective
from trellis.optimization.rules import Curvature

# Compiled once per policy and estimator, because op-by-op dispatch would take most of the time.
sum_gradient = jax.jit(problems.sum_gradient, static_argnums=(0, 1))
max_quadratic_kl = jax.jit(objective.max_quadratic_kl, static_argnums=0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def sum_evaluation(policy, estimator, old, new, chunks):
    _, outputs = objective.gradient_and_outputs(policy, estimator, old, chunks)
    return objective.sum_evaluation(policy, estimator, old, new, chunks, outputs)


policies = pytest.mark.parametrize(
    "policy", [POLICIES["gaussian"], POLICIES["factors"]], ids=["gaussian", "factors"]
)


def whole(batch, dtype=np.float64) -> Chunks:
    return cut(batch, len(batch.kl_weight), 1, dtype)


def dense_surrogate(policy, theta, batch):
    """Return Σ weight·mean_k(π/q·value), as in Eq. 14."""
    total = 0.0
    for k in range(batch.action.shape[1]):
        params, _ = policy.distribution_params(theta, batch.observation)
        ratio = jnp.exp(
            policy.distribution.log_prob(params, batch.action[:, k]) - batch.log_q[:, k]
        )
        total += jnp.sum(batch.surrogate_weight * ratio * batch.value[:, k])
    return total / batch.action.shape[1]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", ["gaussian, linear", pytest.param("factors", marks=pytest.mark.slow)]
)
def test_the_entropy_bonus_is_added_with_its_exact_gradient(name):
    policy, rng, bonus = POLICIES[name], np.random.default_rng(7), 0.3
    old, new = random_theta(policy, rng), random_theta(policy, rng)
    batch = random_batch(policy, old, 20, rng)
    chunks = cut(batch, 8, 3, np.float64)

    @jax.jit
    def dense(theta):
        params, _ = policy.distribution_params(theta, batch.observation)
        extra = jnp.sum(batch.surrogate_weight * policy.distribution.entropy(params))
        return dense_surrogate(policy, theta, batch) + bonus * extra

    @jax.jit
    def ours(old, new):
        given = policy, Estimator.IMPORTANCE, old
        sums, outputs = objective.gradient_and_outputs(*given, chunks, bonus)
        return sums, objective.sum_evaluation(*given, new, chunks, outputs, bonus)

    value, gradient = jax.value_and_grad(dense)(old)
    sums, found = ours(old, new)
    np.testing.assert_allclose(sums.surrogate, value, rtol=1e-10)
    np.testing.assert_allclose(sums.gradient, gradient, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.gain, dense(new) - value, rtol=1e-9)


@policies
@pytest.mark.usefixtures("x64")
class TestSums:
    def test_the_gradient_equals_that_of_the_formula(self, policy):
        rng = np.random.default_rng(0)
        theta = random_theta(policy, rng)
        batch = random_batch(policy, random_theta(policy, rng), 50, rng, actions=2)
        sums = sum_gradient(policy, Estimator.IMPORTANCE, theta, whole(batch))
        dense = jax.jit(jax.value_and_grad(lambda t: dense_surrogate(policy, t, batch)))
        value, gradient = dense(theta)
        np.testing.assert_allclose(sums.surrogate, value, rtol=1e-10)
        np.testing.assert_allclose(sums.gradient, gradient, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(sums.surrogate_weight, batch.surrogate_weight.sum())
        np.testing.assert_allclose(sums.kl_weight, batch.kl_weight.sum())

    def test_the_evaluation_equals_the_formulas(self, policy):
        rng = np.random.default_rng(1)
        old, new = random_theta(policy, rng), random_theta(policy, rng)
        batch = random_batch(policy, old, 50, rng)
        sums = sum_evaluation(policy, Estimator.IMPORTANCE, old, new, whole(batch))
        dense = jax.jit(lambda theta: dense_surrogate(policy, theta, batch))
        gain = dense(new) - dense(old)
        kl = policy.distribution.kl(
            old=policy.distribution_params(old, batch.observation)[0],
            new=policy.distribution_params(new, batch.observation)[0],
        )
        np.testing.assert_allclose(sums.gain, gain, rtol=1e-9)
        np.testing.assert_allclose(sums.kl, np.sum(batch.kl_weight * kl), rtol=1e-10)
        np.testing.assert_allclose(sums.max_kl, np.max(kl), rtol=1e-12)

    def test_the_largest_quadratic_kl_is_the_limit_of_the_largest_kl(self, policy):
        rng = np.random.default_rng(2)
        theta, direction = random_theta(policy, rng), random_theta(policy, rng)
        batch = random_batch(policy, theta, 50, rng)
        tiny = 1e-4
        model = max_quadratic_kl(policy, theta, direction, whole(batch))
        exact = sum_evaluation(
            policy, Estimator.IMPORTANCE, theta, theta + tiny * direction, whole(batch)
        ).max_kl
        np.testing.assert_allclose(model, exact / tiny**2, rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [POLICIES["gaussian"], POLICIES["factors"]],
    ids=["gaussian", "factors"],
)
def test_chunked_equals_whole_to_rounding(policy):
    rng = np.random.default_rng(3)
    old, new = (random_theta(policy, rng).astype(np.float32) for _ in range(2))
    batch = random_batch(policy, old, 1000, rng, dtype=np.float32)
    pieces = cut(batch, 128, 8, np.float32)
    one = sum_gradient(policy, Estimator.IMPORTANCE, old, whole(batch, np.float32))
    cut_up = sum_gradient(policy, Estimator.IMPORTANCE, old, pieces)
    np.testing.assert_allclose(cut_up.gradient, one.gradient, rtol=1e-4, atol=1e-3)
    both = [
        sum_evaluation(policy, Estimator.IMPORTANCE, old, new, c)
        for c in (whole(batch, np.float32), pieces)
    ]
    np.testing.assert_allclose(*both, rtol=1e-4)


@policies
def test_capacity_does_not_change_a_bit(policy):
    rng = np.random.default_rng(4)
    theta = random_theta(policy, rng).astype(np.float32)
    batch = random_batch(policy, theta, 500, rng, dtype=np.float32)
    results = [
        sum_gradient(policy, Estimator.IMPORTANCE, theta, cut(batch, 128, capacity, np.float32))
        for capacity in (4, 8)
    ]
    for other in results[1:]:
        assert other.gradient.tobytes() == results[0].gradient.tobytes()


@policies
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_kl_of_equal_parameters_is_exactly_zero(policy, scale):
    rng = np.random.default_rng(5)
    theta = random_theta(policy, rng, scale).astype(np.float32)
    batch = random_batch(policy, theta, 700, rng, dtype=np.float32)
    pieces = cut(batch, 128, 8, np.float32)
    sums = sum_evaluation(policy, Estimator.IMPORTANCE, theta, theta.copy(), pieces)
    assert (sums.gain, sums.kl, sums.max_kl) == (0.0, 0.0, 0.0)


KINDS = {
    **{case: (test_gaussians.problem, case) for case in test_gaussians.CASES},
    **{f"masked {kind}": (test_masked.problem, kind) for kind in test_masked.KINDS},
}
FAST = "squashed", "masked discrete"


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * (k not in FAST)) for k in KINDS],
)
def test_kl_of_equal_parameters_is_exactly_zero_for_every_kind_of_policy(kind):
    """The KL is exactly 0 in one program, as in a step, and in one per question, as with shards."""
    problem, case = KINDS[kind]
    policy, theta, observation, *_, rng = problem(case, 300)
    theta, observation = theta.astype(np.float32), observation.astype(np.float32)
    params, _ = policy.distribution_params(theta, observation)
    action = policy.distribution.sample(params, policy.distribution.noise(rng, (300,)))
    log_q = policy.distribution.log_prob(params, action)
    value, weight = rng.normal(size=(300, 1)), rng.uniform(0.2, 1.5, 300)
    batch = StateBatch(observation, action[:, None], log_q[:, None], value, weight, weight[::-1])
    pieces = cut(batch, 128, 4, np.float32)
    given = policy, Estimator.IMPORTANCE
    objective = LocalObjective(*given, Curvature.IDENTITY, theta, pieces, pieces)
    for sums in (
        sum_evaluation(*given, theta, theta.copy(), pieces),
        objective.evaluate(np.ones_like(theta), np.float32(0)),
    ):
        assert (sums.gain, sums.kl, sums.max_kl) == (0.0, 0.0, 0.0)


def test_states_of_weight_zero_do_not_count():
    policy = POLICIES["gaussian"]
    rng = np.random.default_rng(6)
    theta = random_theta(policy, rng).astype(np.float32)
    batch = random_batch(policy, theta, 40, rng, dtype=np.float32)
    off = np.arange(40) % 3 == 0
    weight = np.where(off, 0, 1).astype(np.float32)
    poisoned = batch._replace(
        value=np.where(off[:, None], np.nan, batch.value),
        action=np.where(off[:, None, None], 1e30, batch.action),
        surrogate_weight=weight,
        kl_weight=weight,
    )
    clean = jax.tree.map(lambda leaf: leaf[~off], poisoned)
    sums = sum_gradient(policy, Estimator.IMPORTANCE, theta, whole(poisoned, np.float32))
    expected = sum_gradient(policy, Estimator.IMPORTANCE, theta, whole(clean, np.float32))
    assert np.all(np.isfinite(sums.gradient))
    np.testing.assert_allclose(sums.gradient, expected.gradient, rtol=1e-4, atol=1e-4)
    assert sums.surrogate_weight == expected.surrogate_weight == 26


@pytest.mark.usefixtures("x64")
class TestEstimators:
    def setup_method(self):
        rng = np.random.default_rng(7)
        self.log_q, self.log_prob, self.log_new = (
            np.log(rng.dirichlet(np.ones(4), size=6)) for _ in range(3)
        )
        self.value = rng.normal(size=(6, 4))

    def test_enumerated_is_the_expectation(self):
        values = surrogate_values(Estimator.ENUMERATED, self.log_prob, self.log_q, self.value)
        expected = np.sum(np.exp(self.log_prob) * self.value, axis=1)
        np.testing.assert_allclose(values, expected, rtol=1e-12)

    def test_self_normalized_is_the_papers_quotient(self):
        ratio = np.exp(self.log_prob - self.log_q)
        expected = np.sum(ratio * self.value, 1) / np.sum(ratio, 1)
        values = surrogate_values(Estimator.SELF_NORMALIZED, self.log_prob, self.log_q, self.value)
        np.testing.assert_allclose(values, expected, rtol=1e-12)

    @pytest.mark.parametrize("estimator", Estimator)
    def test_gains_are_differences_of_values(self, estimator):
        if estimator is Estimator.ENUMERATED:
            assert np.allclose(np.exp(self.log_prob).sum(1), 1)
        gains = surrogate_gains(estimator, self.log_prob, self.log_new, self.log_q, self.value)
        new = surrogate_values(estimator, self.log_new, self.log_q, self.value)
        old = surrogate_values(estimator, self.log_prob, self.log_q, self.value)
        np.testing.assert_allclose(gains, new - old, rtol=1e-10)

    def test_importance_sampling_is_unbiased_for_any_q(self):
        """The estimate is averaged over all pairs of actions with their probabilities under q."""
        log_q, log_prob, value = self.log_q[0], self.log_prob[0], self.value[0]
        total = 0.0
        for pair in itertools.product(range(4), repeat=2):
            pair = list(pair)
            estimate = surrogate_values(
                Estimator.IMPORTANCE, log_prob[pair], log_q[pair], value[pair]
            )
            total += np.exp(log_q[pair].sum()) * estimate
        np.testing.assert_allclose(total, np.sum(np.exp(log_prob) * value), rtol=1e-12)


def test_gains_are_accurate_for_large_values_in_single_precision():
    """With a step of 1e-4 and values around 1e6, a difference of float32 sums would be noise."""
    rng = np.random.default_rng(8)
    log_old = np.log(rng.dirichlet(np.ones(3), size=100))
    log_new = np.log(np.exp(log_old) * (1 + 1e-4 * rng.normal(size=(100, 3))))
    log_new -= np.log(np.exp(log_new).sum(1, keepdims=True))
    value = rng.normal(size=(100, 3)) + 1e6
    exact = np.sum((np.exp(log_new) - np.exp(log_old)) * value, 1)
    single = (x.astype(np.float32) for x in (log_old, log_new, log_old, value))
    gains = surrogate_gains(Estimator.ENUMERATED, *single)
    # The values themselves are rounded to 0.06, so the error of the gain has that order.
    assert np.max(np.abs(gains - exact)) < 2e-5
    assert np.max(np.abs(exact)) > 1e-4


@pytest.mark.parametrize("estimator", [Estimator.SELF_NORMALIZED, Estimator.ENUMERATED])
def test_actions_of_equal_value_give_no_gradient(estimator):
    """The gradient must be exactly 0, because any remainder is scaled to a full step.

    A plain mean of three equal numbers is not always exactly their value.
    """
    rng = np.random.default_rng(9)
    value = np.repeat(rng.normal(size=(50, 1)), 3, axis=1).astype(np.float32)
    assert np.any(jax.jit(lambda v: jnp.mean(v, axis=1))(value) != value[:, 0])
    log_prob = np.log(rng.dirichlet(np.ones(3), 50)).astype(np.float32)

    def surrogate(log_prob):
        return jnp.sum(surrogate_values(estimator, log_prob, log_prob * 0, value))

    assert not np.any(jax.jit(jax.grad(surrogate))(log_prob))


def test_memory_does_not_grow_with_the_batch():
    """The test measures the working memory of the compiled sums without inputs and outputs."""
    policy = POLICIES["gaussian"]

    def working_bytes(capacity):
        def shape(*dims):
            return jax.ShapeDtypeStruct((capacity, 4096, *dims), jnp.float32)

        batch = StateBatch(shape(4), shape(1, 2), shape(1), shape(1), shape(), shape())
        chunks = Chunks(batch, jax.ShapeDtypeStruct((), jnp.int32))
        theta = jax.ShapeDtypeStruct((policy.num_params,), jnp.float32)

        def both(theta, chunks):
            return (
                sum_gradient(policy, Estimator.IMPORTANCE, theta, chunks),
                sum_evaluation(policy, Estimator.IMPORTANCE, theta, theta * 2, chunks),
            )

        return jax.jit(both).lower(theta, chunks).compile().memory_analysis().temp_size_in_bytes

    small, large = working_bytes(12), working_bytes(245)  # 50,000 and 1,000,000 states
    # The network's outputs at θ_old are kept with the data: two floats per state.
    kept = [capacity * 4096 * 2 * 4 for capacity in (12, 245)]
    assert large - kept[1] <= (small - kept[0]) * 1.01
