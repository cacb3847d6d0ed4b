"""Tests of the step on problems with known answers, and of properties of every step."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.problems import POLICIES, random_batch, random_theta
from trellis.config import StepConfig
from trellis.estimation.state_batch import cut
from trellis.estimation.surrogate import (
    Estimator,
    EvaluationSums,
    GradientSums,
    gradient_and_outputs,
    sum_evaluation,
)
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.objective import Maximum, Start
from trellis.optimization.rules import RULES
from trellis.optimization.step import Status, StepInputs, take_step
from trellis.optimization.trust_region import TrustRegion

SETTINGS = {
    "trpo": StepConfig("trpo"),
    "natural-gradient": StepConfig("natural-gradient", multiplier=0.05),
    "empirical-fim": StepConfig("empirical-fim"),
    "max-kl-step": StepConfig("max-kl-step"),
    "policy-gradient": StepConfig("policy-gradient"),
    "kl-penalty": StepConfig("kl-penalty", penalty=10.0),
}
BY_KL = {"trpo": "mean_kl", "empirical-fim": "mean_kl", "max-kl-step": "max_kl"}


def test_every_method_is_covered_here():
    assert SETTINGS.keys() == RULES.keys() - {"max-kl"}  # It solves Eq. 11: test_max_kl.py.


class QuadraticObjective:
    """An objective with linear L and quadratic KL; every row of `per_state` is a state."""

    def __init__(self, theta, g, per_state):
        self.theta, self.g, self.per_state = theta, g, per_state
        self.A = np.mean(per_state, axis=0)

    def start(self):
        # Sums with different total weights, so that a missing division is detected.
        sums = GradientSums(jnp.asarray(2.0), 2.0 * jnp.asarray(self.g), 2.0, 4.0)
        return Start(sums, 3.0)

    def fisher_product(self, v):
        return 3.0 * self.A @ v

    def max_quadratic_kl(self, direction):
        each = 0.5 * jnp.einsum("i,nij,j->n", direction, self.per_state, direction)
        return Maximum(jnp.max(each))

    def evaluate(self, direction, multiple):
        d = multiple * direction
        each = 0.5 * jnp.einsum("i,nij,j->n", d, self.per_state, d)
        return EvaluationSums(2.0 * self.g @ d, 4.0 * jnp.mean(each), jnp.max(each))


class SteeperThanItsFisherMatrix(QuadraticObjective):
    """A problem whose KL is twice that of its Fisher matrix, so that the full step is too long."""

    def evaluate(self, direction, multiple):
        found = super().evaluate(direction, multiple)
        return found._replace(kl=2.0 * found.kl)


def quadratic(seed=0, size=6, kind=QuadraticObjective):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(5, size, size))
    per_state = roots @ roots.transpose(0, 2, 1)
    return kind(rng.normal(size=size), rng.normal(size=size), per_state)


# The same step as plain Python, so that no program is compiled per problem.
step_by_plain_loop = functools.partial(take_step, while_loop=python_while)


@pytest.mark.usefixtures("x64")
class TestOnAQuadratic:
    exact = functools.partial(StepConfig, cg_iterations=100, damping=0.0, cg_tolerance=1e-14)

    @pytest.mark.parametrize("max_kl", [1e-4, 0.01, 1.0])
    def test_trpo_steps_to_the_bound(self, max_kl):
        problem = quadratic()
        theta, info = step_by_plain_loop(problem, problem.theta, self.exact("trpo", max_kl=max_kl))
        s = np.linalg.solve(problem.A, problem.g)
        expected = np.sqrt(2 * max_kl / (s @ problem.A @ s)) * s
        np.testing.assert_allclose(theta - problem.theta, expected, rtol=1e-6)
        assert info.status == Status.ACCEPTED
        assert info.backtracks == 0
        assert max_kl * (1 - 1e-6) < info.mean_kl < max_kl

    def test_the_gain_is_predicted_exactly(self):
        problem = quadratic(1)
        theta, info = step_by_plain_loop(problem, problem.theta, self.exact("trpo"))
        np.testing.assert_allclose(info.predicted_gain, problem.g @ (theta - problem.theta))
        np.testing.assert_allclose(info.surrogate_after, 1.0 + info.predicted_gain)

    def test_damping_is_not_part_of_the_step_length_by_default(self):
        problem = quadratic(2)
        damped = self.exact("trpo", damping=5.0)
        _, info = step_by_plain_loop(problem, problem.theta, damped)
        np.testing.assert_allclose(info.mean_kl, damped.max_kl, rtol=1e-6)
        asked = self.exact("trpo", damping=5.0, damping_in_step_length=True)
        _, info = step_by_plain_loop(problem, problem.theta, asked)
        assert info.mean_kl < 0.9 * asked.max_kl

    def test_max_kl_puts_the_worst_state_at_the_bound(self):
        problem = quadratic(3)
        _, info = step_by_plain_loop(problem, problem.theta, self.exact("max-kl-step"))
        np.testing.assert_allclose(info.max_kl, 0.01, rtol=1e-6)
        assert info.mean_kl < info.max_kl <= 0.01

    def test_natural_gradient_uses_its_multiplier(self):
        problem = quadratic(4)
        config = self.exact("natural-gradient", multiplier=0.3)
        theta, _ = step_by_plain_loop(problem, problem.theta, config)
        expected = 0.3 * np.linalg.solve(problem.A, problem.g)
        np.testing.assert_allclose(theta - problem.theta, expected, rtol=1e-8)

    def test_policy_gradient_stays_in_its_ball(self):
        problem = quadratic(5)
        theta, _ = step_by_plain_loop(problem, problem.theta, self.exact("policy-gradient"))
        step = theta - problem.theta
        np.testing.assert_allclose(0.5 * step @ step, 0.01, rtol=1e-6)
        np.testing.assert_allclose(
            step / np.linalg.norm(step), problem.g / np.linalg.norm(problem.g)
        )

    def test_policy_gradient_with_a_multiplier_is_plain_ascent(self):
        problem = quadratic(5)
        config = self.exact("policy-gradient", multiplier=0.01)
        theta, _ = step_by_plain_loop(problem, problem.theta, config)
        np.testing.assert_allclose(theta - problem.theta, 0.01 * problem.g)

    @pytest.mark.parametrize("penalty", [0.1, 1.0, 100.0])
    def test_kl_penalty_maximizes_the_penalized_objective(self, penalty):
        problem = quadratic(6)
        config = self.exact("kl-penalty", penalty=penalty)
        theta, info = step_by_plain_loop(problem, problem.theta, config)
        expected = np.linalg.solve(problem.A, problem.g) / penalty
        np.testing.assert_allclose(theta - problem.theta, expected, rtol=0.1)
        assert info.status == Status.ACCEPTED

    def test_kl_penalty_reports_no_backtracks(self):
        problem = quadratic(6)
        _, info = step_by_plain_loop(problem, problem.theta, self.exact("kl-penalty"))
        assert info.backtracks == 0

    @pytest.mark.parametrize("method", ["trpo", "kl-penalty", "natural-gradient"])
    def test_a_step_ends_at_its_lower_bounds(self, method):
        problem = quadratic(6)
        multiplier = 0.3 if method == "natural-gradient" else None
        config = self.exact(method, max_kl=0.1, multiplier=multiplier)
        free, _ = step_by_plain_loop(problem, problem.theta, config)
        falls = int(np.argmin(free - problem.theta))
        lower = np.full(6, -np.inf)
        lower[falls] = problem.theta[falls] + 0.1 * (free - problem.theta)[falls]
        inputs = StepInputs(lower=lower)
        theta, info = step_by_plain_loop(problem, problem.theta, config, inputs=inputs)
        assert info.status == Status.ACCEPTED
        assert theta[falls] == pytest.approx(lower[falls], abs=1e-12)
        others = np.arange(6) != falls
        if info.step_fraction == 1 and method != "kl-penalty":
            np.testing.assert_array_equal(theta[others], free[others])
        np.testing.assert_allclose(info.predicted_gain, problem.g @ (theta - problem.theta))

    def test_a_bound_that_the_accepted_step_meets_changes_nothing(self):
        problem = quadratic(6, kind=SteeperThanItsFisherMatrix)
        free, info = step_by_plain_loop(problem, problem.theta, self.exact("trpo"))
        assert info.step_fraction < 1
        full = problem.theta + (free - problem.theta) / info.step_fraction
        falls = int(np.argmin(full - problem.theta))
        lower = np.full(6, -np.inf)
        lower[falls] = (full[falls] + free[falls]) / 2
        inputs = StepInputs(lower=lower)
        theta, _ = step_by_plain_loop(problem, problem.theta, self.exact("trpo"), inputs=inputs)
        np.testing.assert_array_equal(theta, free)

    def test_a_plain_loop_takes_the_same_step(self):
        problem = quadratic(7)
        compiled, _ = take_step(problem, problem.theta, StepConfig())
        plain, _ = take_step(problem, problem.theta, StepConfig(), while_loop=python_while)
        np.testing.assert_allclose(compiled, plain, rtol=1e-12)

    def test_a_direction_of_negative_curvature_is_a_status(self):
        problem = quadratic(8)
        problem.A = -problem.A
        theta, info = step_by_plain_loop(problem, problem.theta, self.exact("trpo"))
        assert info.status == Status.CURVATURE_NOT_POSITIVE
        assert theta.tobytes() == problem.theta.tobytes()

    def test_an_objective_that_never_improves_is_a_status(self):
        problem = quadratic(9)
        problem.evaluate = lambda *_: EvaluationSums(*jnp.array([-2.0, 0.004, 0.001]))
        theta, info = step_by_plain_loop(problem, problem.theta, StepConfig())
        assert info.status == Status.NO_IMPROVEMENT
        assert info.backtracks == StepConfig().max_backtracks
        assert theta.tobytes() == problem.theta.tobytes()
        assert (info.mean_kl, info.step_fraction, info.step_norm) == (0, 0, 0)
        assert info.surrogate_after == info.surrogate_before

    def test_a_constraint_that_stays_violated_is_a_status(self):
        problem = quadratic(9)
        problem.evaluate = lambda *_: EvaluationSums(*jnp.array([2.0, 0.08, 0.02]))
        _, info = step_by_plain_loop(problem, problem.theta, StepConfig())
        assert info.status == Status.CONSTRAINT_VIOLATED

    def test_without_the_line_search_the_full_step_is_taken(self):
        problem = quadratic(9)
        problem.evaluate = lambda *_: EvaluationSums(*jnp.array([-2.0, 0.08, 0.02]))
        theta, info = step_by_plain_loop(problem, problem.theta, StepConfig(line_search=False))
        assert info.status == Status.ACCEPTED
        assert not np.array_equal(theta, problem.theta)


@functools.cache
def compiled_step(policy_name, method):
    return TrustRegion(POLICIES[policy_name], SETTINGS[method], expected_states=64)


@functools.cache
def compiled_evaluation(policy_name):
    policy = POLICIES[policy_name]

    @jax.jit
    def evaluate(old, new, chunks):
        _, outputs = gradient_and_outputs(policy, Estimator.IMPORTANCE, old, chunks)
        return sum_evaluation(policy, Estimator.IMPORTANCE, old, new, chunks, outputs)

    return evaluate


@pytest.mark.parametrize(
    ("method", "policy_name"),
    [
        ("trpo", "gaussian"),
        *(
            pytest.param(method, "factors", marks=pytest.mark.slow)
            for method in SETTINGS
            if method != "trpo"
        ),
    ],
)
def test_every_method_takes_a_step_on_a_healthy_batch(method, policy_name):
    policy = POLICIES[policy_name]
    rng = np.random.default_rng(3)
    theta = random_theta(policy, rng, 0.3).astype(np.float32)
    batch = random_batch(policy, theta, 2000, rng, dtype=np.float32)
    config = dataclasses.replace(SETTINGS[method], fisher_fraction=1.0, damping=1e-4)
    new, info = TrustRegion(policy, config, expected_states=2000).step(
        theta, batch, np.random.default_rng(0)
    )
    assert info.status == Status.ACCEPTED
    chunks = cut(batch, 500, 4, np.float32)
    sums = compiled_evaluation(policy_name)(theta, np.asarray(new), chunks)
    # Each sum has its own weight; with vine one is a hundred times the other.
    np.testing.assert_allclose(info.mean_kl, sums.kl / batch.kl_weight.sum(), rtol=1e-4)
    gain = sums.gain / batch.surrogate_weight.sum()
    np.testing.assert_allclose(
        info.surrogate_after - info.surrogate_before, gain, rtol=1e-3, atol=1e-6
    )
    assert gain > 0
    if method in BY_KL:
        # The step length comes from δ; the step is most of it, or the rest after one or two
        # backtracks.
        assert 0.4 * config.max_kl < getattr(info, BY_KL[method]) <= config.max_kl


def any_step(*policies):
    return given(
        policy_name=st.sampled_from(policies),
        method=st.sampled_from(list(SETTINGS)),
        n=st.sampled_from([1, 2, 17, 64]),
        seed=st.integers(0, 2**32 - 1),
        spread=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
        value_exponent=st.sampled_from([-12, -6, 0, 6, 12]),
        log_std=st.sampled_from([None, -13.8, -3.0, 3.0]),
        poison=st.sampled_from([None] * 8 + ["zero", "nan", "inf"]),
    )


@settings(max_examples=25, deadline=None)
@any_step("gaussian")
def test_properties_of_every_step(**problem):
    """This test uses one policy, because each policy compiles a program per method."""
    check_step(**problem)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@any_step("gaussian", "factors")
def test_properties_of_three_thousand_steps(**problem):
    check_step(**problem)


def check_step(policy_name, method, n, seed, spread, value_exponent, log_std, poison):
    policy, config = POLICIES[policy_name], SETTINGS[method]
    rng = np.random.default_rng(seed)
    theta = random_theta(policy, rng, spread).astype(np.float32)
    if log_std is not None and policy_name == "gaussian":
        theta[-2:] = log_std
    batch = random_batch(policy, theta, n, rng, dtype=np.float32)
    value = batch.value * np.float32(10.0**value_exponent)
    if poison is not None:
        value = {"zero": value * 0, "nan": value + np.nan, "inf": value + np.inf}[poison]
    batch = batch._replace(value=value)
    before = theta.tobytes()
    new, info = compiled_step(policy_name, method).step(theta, batch, np.random.default_rng(0))
    new = np.asarray(new)

    assert theta.tobytes() == before
    assert np.all(np.isfinite(new))
    if poison == "zero":
        assert info.status == Status.ZERO_GRADIENT
    elif poison is not None:
        assert info.status == Status.NOT_FINITE
    if info.status != Status.ACCEPTED:
        assert new.tobytes() == before
        assert (info.mean_kl, info.max_kl, info.step_fraction) == (0, 0, 0)
        return
    if method in BY_KL:
        # Checked by a separate evaluation, in addition to the step's own description.
        sums = compiled_evaluation(policy_name)(theta, new, cut(batch, 64, 1, np.float32))
        measured = {"mean_kl": sums.kl / batch.kl_weight.sum(), "max_kl": sums.max_kl}
        assert getattr(info, BY_KL[method]) <= config.max_kl
        assert measured[BY_KL[method]] <= config.max_kl * (1 + 1e-5)
        assert info.surrogate_after >= info.surrogate_before
        assert sums.gain > 0
    if method == "kl-penalty":
        assert info.surrogate_after >= info.surrogate_before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_kl": -0.01}, "max_kl must be > 0, got -0.01"),
        ({"method": "trop"}, "method must be one of trpo"),
        ({"method": "natural-gradient"}, "multiplier must be set"),
        ({"multiplier": 0.1}, "multiplier must be None for trpo"),
        ({"cg_iterations": 0}, "cg_iterations must be at least 1"),
        ({"fisher_fraction": 0.0}, "fisher_fraction must be in"),
        ({"backtrack_ratio": 1.0}, "backtrack_ratio must be between"),
        ({"damping": -1.0}, "damping must be >= 0"),
    ],
)
def test_invalid_settings_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        StepConfig(**options)
