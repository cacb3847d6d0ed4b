"""Tests of Algorithm 1, the trust regions and policy iteration, and of their certificates."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.random_mdps import Problem, examples, problems
from trellis.theory import bounds
from trellis.theory.examples import chain, garnet, gridworld
from trellis.theory.mdp import FiniteMDP
from trellis.theory.policy_iteration import (
    algorithm1,
    certify,
    iterate,
    max_kl_trust_region,
    mean_kl_trust_region,
    optimal_performance,
    optimal_values,
    policy_iteration,
)

SLACK = 1e-10


@examples(600)
@given(problems(max_states=4))
def test_algorithm_1_never_falls_and_keeps_its_certificate(problem: Problem):
    old = problem.old
    for iteration in iterate(problem.mdp, old.policy, algorithm1, 2):
        certificate = iteration.certificate
        assert certificate.gain >= -SLACK
        assert certificate.gain >= certificate.minorizer_gain - SLACK
        assert certificate.gain >= certificate.theorem1_gain - SLACK
        assert certificate.gain >= certificate.coupling_gain - SLACK
        assert certificate.coupling_gain >= certificate.theorem1_gain - SLACK
        assert certificate.minorizer_gain >= -SLACK
        promised = bounds.coupling_bound(old, iteration.new.policy) - old.performance
        assert certificate.coupling_gain == pytest.approx(promised, rel=1e-9, abs=1e-9)
        old = iteration.new


@examples(150)
@given(problems(max_states=5), st.floats(-4.0, 0.5))
def test_algorithm_1_maximizes_the_minorizer(problem: Problem, exponent: float):
    """No trust-region step and no random policy has a larger L − C max KL."""
    old = problem.old
    best = bounds.kl_bound(old, algorithm1(old))
    assert best >= old.performance - SLACK
    rivals = [problem.new, policy_iteration(old), max_kl_trust_region(10.0**exponent)(old)]
    for rival in rivals:
        assert best >= bounds.kl_bound(old, rival) - 1e-9


@examples(150)
@given(problems(), st.floats(-4.0, 1.0))
def test_trust_regions_keep_their_bound_and_do_not_lower_the_surrogate(
    problem: Problem, exponent: float
):
    radius = 10.0**exponent
    old = problem.old
    by_max = certify(old, problem.mdp.evaluate(max_kl_trust_region(radius)(old)))
    by_mean = certify(old, problem.mdp.evaluate(mean_kl_trust_region(radius)(old)))
    assert by_max.max_kl <= radius * (1.0 + 1e-6)
    assert by_mean.mean_kl <= radius * (1.0 + 1e-6)
    assert by_max.surrogate_gain >= -SLACK
    assert by_mean.surrogate_gain >= -SLACK
    # A tabular policy improves every state separately, so η cannot decrease either (Eq. 2).
    assert by_max.gain >= -SLACK
    assert by_mean.gain >= -SLACK


@examples(150)
@given(problems())
def test_policy_iteration_reaches_the_optimum_of_value_iteration(problem: Problem):
    goal = optimal_performance(problem.mdp)
    last = problem.old
    for iteration in iterate(problem.mdp, problem.old.policy, policy_iteration, 60):
        assert iteration.certificate.gain >= -SLACK
        last = iteration.new
        if not np.any(last.advantages > 1e-12):
            break
    assert not np.any(last.advantages > 1e-9)
    assert last.performance == pytest.approx(goal, abs=1e-9)


def test_optimal_values_by_hand():
    # The last state has reward 1 in every step: V*(s) = γ^(n−1−s)/(1 − γ).
    mdp = chain(5, gamma=0.5, small_reward=0.0)
    np.testing.assert_allclose(optimal_values(mdp), 2.0 * 0.5 ** np.arange(4, -1, -1), rtol=1e-11)


@pytest.mark.parametrize("step", [max_kl_trust_region(1.0), mean_kl_trust_region(1.0)])
def test_large_steps_reach_the_optimum(step):
    for mdp in (gridworld(), chain(8, slip=0.1), garnet(15, 4, 3, np.random.default_rng(0))):
        *_, last = iterate(mdp, mdp.uniform_policy(), step, 60)
        assert last.new.performance == pytest.approx(optimal_performance(mdp), rel=1e-6)


def test_algorithm_1_reaches_the_optimum_where_the_discount_allows_it():
    mdp = garnet(10, 3, 3, np.random.default_rng(1), gamma=0.1)
    *_, last = iterate(mdp, mdp.uniform_policy(), algorithm1, 150)
    assert last.new.performance == pytest.approx(optimal_performance(mdp), rel=1e-2)
    assert last.certificate.gain > 0.0


def test_huge_trust_region_is_policy_iteration():
    mdp = garnet(10, 4, 3, np.random.default_rng(2))
    old = mdp.evaluate(mdp.uniform_policy())
    greedy = policy_iteration(old)
    np.testing.assert_allclose(max_kl_trust_region(300.0)(old), greedy, atol=1e-9)
    np.testing.assert_allclose(mean_kl_trust_region(300.0)(old), greedy, atol=1e-9)


def test_algorithm_1_cannot_leave_a_deterministic_policy():
    """Outside of the support, both the gain and KL(old ‖ new) = −log(1 − x) are linear in mass x.

    For γ ≥ 1/5, C exceeds Σ ρ max A, and x = 0 is optimal. Theorem 1's α² would allow a step.
    """
    corridor = chain(4, gamma=0.5)
    mdp = FiniteMDP(corridor.P, corridor.r, np.full(4, 0.25), corridor.gamma)
    left = np.eye(2)[np.zeros(4, int)]
    old = mdp.evaluate(left)
    np.testing.assert_array_equal(algorithm1(old), left)
    small_step = 0.999 * left + 0.001 * policy_iteration(old)
    assert bounds.theorem1_bound(old, small_step) > old.performance
    # With a small γ, C is small too, and a step is possible.
    old = FiniteMDP(corridor.P, corridor.r, np.eye(4)[2], 0.05).evaluate(left)
    assert bounds.max_kl(left, algorithm1(old)) > 0.1


def test_penalty_allows_steps_that_shrink_with_the_discount():
    """Steps with the penalty C are much smaller than δ = 0.01, which motivates trust regions."""
    radii = []
    for gamma in (0.5, 0.9, 0.99):
        mdp = garnet(20, 4, 3, np.random.default_rng(0), gamma=gamma)
        old = mdp.evaluate(mdp.uniform_policy())
        radii.append(bounds.max_kl(old.policy, algorithm1(old)))
    assert radii[0] > 10.0 * radii[1] > 100.0 * radii[2] > 0.0
    assert radii[1] < 0.01 / 100.0


@pytest.mark.parametrize("make", [max_kl_trust_region, mean_kl_trust_region])
def test_radii_must_be_positive(make):
    with pytest.raises(ValueError, match=r"_kl must be > 0, got -0\.01"):
        make(-0.01)


def test_two_hundred_states_take_under_a_second():
    mdp = garnet(200, 10, 5, np.random.default_rng(0), gamma=0.99)
    seconds = []
    for _ in range(2):  # the better of two, because the machine may be busy
        started = time.perf_counter()
        (iteration,) = iterate(mdp, mdp.uniform_policy(), algorithm1, 1)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1.0
    assert iteration.certificate.gain >= iteration.certificate.minorizer_gain > 0.0
