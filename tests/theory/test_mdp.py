"""Tests of exact quantities against hand-computed numbers, series and Section 2's identities."""

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.random_mdps import Problem, examples, problems
from trellis.theory.examples import garnet, random_policy
from trellis.theory.mdp import FiniteMDP

TWO_STATES = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.0, 1.0]]])


def test_two_states_by_hand():
    # State 1 has reward 1. Action 1 leads from state 0 to state 1 and stays there.
    mdp = FiniteMDP(TWO_STATES, np.array([0.0, 1.0]), np.array([1.0, 0.0]), 0.5)
    go = np.array([[0.0, 1.0], [0.0, 1.0]])
    exact = mdp.evaluate(go)
    np.testing.assert_allclose(exact.values, [1.0, 2.0])
    np.testing.assert_allclose(exact.q_values, [[0.5, 1.0], [1.75, 2.0]])
    np.testing.assert_allclose(exact.advantages, [[-0.5, 0.0], [-0.25, 0.0]])
    np.testing.assert_allclose(exact.visitation, [1.0, 1.0])
    assert exact.performance == pytest.approx(1.0)
    assert exact.max_advantage == pytest.approx(0.5)
    # L for staying in state 0 one time in four: 1 + 1 · (1/4)(−1/2).
    assert mdp.evaluate(go).surrogate([[0.25, 0.75], [0.0, 1.0]]) == pytest.approx(0.875)


def test_rewards_of_actions_by_hand():
    r = np.array([[0.0, 3.0], [1.0, 0.0]])
    mdp = FiniteMDP(TWO_STATES, r, np.array([0.5, 0.5]), 0.5)
    policy = np.array([[0.0, 1.0], [0.0, 1.0]])
    evaluation = mdp.evaluate(policy)
    np.testing.assert_allclose(evaluation.values, [3.0, 0.0])
    np.testing.assert_allclose(evaluation.q_values, [[1.5, 3.0], [1.75, 0.0]])
    assert mdp.performance(policy) == pytest.approx(1.5)


@examples(100)
@given(problems())
def test_values_and_visitation_are_their_series(problem: Problem):
    mdp, exact = problem.mdp, problem.old
    horizon = _horizon(mdp.gamma)
    discounts = mdp.gamma ** np.arange(horizon)
    series = discounts @ mdp.state_distributions(exact.policy, horizon)
    np.testing.assert_allclose(exact.visitation, series, atol=1e-9)
    assert exact.visitation.sum() == pytest.approx(1.0 / (1.0 - mdp.gamma))
    assert exact.performance == pytest.approx(series @ mdp.rewards(exact.policy), abs=1e-9)
    # Σ_a π A = 0, and Q looks one step ahead of V.
    np.testing.assert_allclose((exact.policy * exact.advantages).sum(axis=1), 0.0, atol=1e-10)
    np.testing.assert_allclose((exact.policy * exact.q_values).sum(axis=1), exact.values)


@examples(1000)
@given(problems())
def test_identity_over_time_steps_and_over_states(problem: Problem):
    """Eq. 1 (Lemma 1) and Eq. 2 hold exactly."""
    mdp, old, new = problem.mdp, problem.old, problem.new
    advantages = (new * old.advantages).sum(axis=1)
    after = mdp.evaluate(new)
    horizon = _horizon(mdp.gamma)
    by_time = mdp.state_distributions(new, horizon) @ advantages
    assert abs(old.performance + mdp.gamma ** np.arange(horizon) @ by_time - after.performance) < (
        1e-9
    )
    assert abs(old.performance + after.visitation @ advantages - after.performance) < 1e-9


@examples(400)
@given(problems(), st.integers(0, 2**32 - 1))
def test_improvement_where_no_state_expects_a_loss(problem: Problem, seed: int):
    mdp, old = problem.mdp, problem.old
    # Each state uses the new policy if its expected advantage is not negative.
    keep = (problem.new * old.advantages).sum(axis=1) >= 0.0
    new = np.where(keep[:, None], problem.new, old.policy)
    rng = np.random.default_rng(seed)
    undecided = rng.random(mdp.num_states) < 0.3
    new[undecided] = np.eye(mdp.num_actions)[old.advantages.argmax(axis=1)][undecided]
    assert mdp.performance(new) >= old.performance - 1e-10


@examples(400)
@given(problems(), st.integers(0, 2**32 - 1))
def test_surrogate_matches_performance_to_first_order(problem: Problem, seed: int):
    """Eq. 4 holds for softmax policies along a random direction of their logits."""
    mdp = problem.mdp
    assert problem.old.surrogate(problem.old.policy) == problem.old.performance
    rng = np.random.default_rng(seed)
    logits, direction = rng.standard_normal((2, mdp.num_states, mdp.num_actions))
    old = mdp.evaluate(_softmax(logits))
    h = 1e-5
    ahead, behind = _softmax(logits + h * direction), _softmax(logits - h * direction)
    slope_eta = (mdp.performance(ahead) - mdp.performance(behind)) / (2 * h)
    slope_surrogate = (old.surrogate(ahead) - old.surrogate(behind)) / (2 * h)
    assert abs(slope_eta - slope_surrogate) < 1e-6 * (1.0 + abs(slope_eta))


def test_surrogate_is_not_performance():
    """They differ in second order, so the test above can detect a wrong first order."""
    mdp = garnet(5, 3, 2, np.random.default_rng(0), gamma=0.9)
    old, new = (random_policy(mdp, np.random.default_rng(seed)) for seed in (1, 2))
    assert abs(mdp.evaluate(old).surrogate(new) - mdp.performance(new)) > 0.1


def _negative(array, index, value):
    array = np.array(array, np.float64)
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"P": _negative(TWO_STATES, (1, 0, 0), 0.4)}, "P[s=1, a=0] sums to 0.9 over s'"),
        ({"P": _negative(TWO_STATES, (0, 1, 0), -0.1)}, "P[s=0, a=1, s'=0] = -0.1 is negative"),
        ({"P": _negative(TWO_STATES, (1, 1, 0), np.nan)}, "P[s=1, a=1, s'=0] = nan is not a num"),
        ({"P": _negative(TWO_STATES, (1, 1, 0), np.inf)}, "P[s=1, a=1] sums to inf"),
        ({"P": TWO_STATES[:, :, :1]}, "(states, actions, states), got (2, 2, 1)"),
        ({"P": TWO_STATES[0]}, "(states, actions, states), got (2, 2)"),
        ({"r": np.zeros(3)}, "(2,) or (2, 2) for the 2 states and 2 actions of P, got (3,)"),
        ({"r": [0.0, np.nan]}, "r[s=1] = nan is not finite"),
        ({"r": [[0.0, 1.0], [np.inf, 0.0]]}, "r[s=1, a=0] = inf is not finite"),
        ({"rho0": [0.5, 0.4]}, "rho0 sums to 0.9 over s"),
        ({"rho0": [1.5, -0.5]}, "rho0[s=1] = -0.5 is negative"),
        ({"rho0": [1.0]}, "rho0 must have shape (2,)"),
        ({"gamma": 1.0}, "gamma must be in [0, 1), got 1.0"),
        ({"gamma": -0.1}, "gamma must be in [0, 1), got -0.1"),
        ({"gamma": float("nan")}, "gamma must be in [0, 1), got nan"),
    ],
)
def test_bad_mdps_are_errors_that_name_the_entry(change, message):
    parts = {"P": TWO_STATES, "r": np.zeros(2), "rho0": [1.0, 0.0], "gamma": 0.9}
    FiniteMDP(**parts)
    with pytest.raises(ValueError, match=re.escape(message)):
        FiniteMDP(**{**parts, **change})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.6]], "policy[s=1] sums to 1.1 over a"),
        ([[1.1, -0.1], [0.5, 0.5]], "policy[s=0, a=1] = -0.1 is negative"),
        ([[0.5, 0.5]], "must have shape (2, 2) for 2 states and 2 actions, got (1, 2)"),
    ],
)
def test_bad_policies_are_errors_that_name_the_entry(policy, message):
    mdp = FiniteMDP(TWO_STATES, np.zeros(2), np.array([1.0, 0.0]), 0.9)
    with pytest.raises(ValueError, match=re.escape(message)):
        mdp.performance(policy)


def test_an_mdp_cannot_be_written_to():
    table = TWO_STATES.copy()
    mdp = FiniteMDP(table, np.zeros(2), np.array([1.0, 0.0]), 0.9)
    with pytest.raises(ValueError, match="read-only"):
        mdp.P[0, 0, 0] = 0.5
    table[:] = 7.0  # the MDP has its own copy
    np.testing.assert_array_equal(mdp.P, TWO_STATES)


@pytest.mark.slow
def test_two_thousand_states_take_under_two_seconds():
    rng = np.random.default_rng(0)
    num_states, num_actions = 2000, 10
    P = np.zeros((num_states * num_actions, num_states))
    targets = rng.integers(num_states, size=(len(P), 4))
    np.add.at(P, (np.arange(len(P))[:, None], targets), 0.25)
    mdp = FiniteMDP(
        P.reshape(num_states, num_actions, num_states),
        rng.standard_normal(num_states),
        np.full(num_states, 1.0 / num_states),
        0.99,
    )
    policy = mdp.uniform_policy()
    seconds = []
    for _ in range(2):  # the better of two, because the machine may be busy
        started = time.perf_counter()
        exact = mdp.evaluate(policy)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 2.0
    assert exact.visitation.sum() == pytest.approx(100.0)


def _horizon(gamma: float) -> int:
    """Return the number of steps after which a discounted sum of advantages changes by < 1e-10."""
    return 1 if gamma == 0.0 else int(np.ceil(np.log(1e-15) / np.log(gamma)))


def _softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
