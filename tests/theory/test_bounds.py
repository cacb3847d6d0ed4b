"""Tests of every bound of Section 3 and Appendices A and B on random pairs of policies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from tests.theory.random_mdps import Problem, examples, problems
from trellis.theory import bounds, perturbation
from trellis.theory.conservative import mix
from trellis.theory.examples import garnet, random_policy
from trellis.theory.mdp import FiniteMDP

SLACK = 1e-9


@examples(1000)
@given(problems())
def test_performance_is_above_every_bound(problem: Problem):
    """Theorem 1, its KL form (Eq. 9) and Appendix A's stronger form are in order."""
    old, new = problem.old, problem.new
    performance = problem.mdp.performance(new)
    sharp = bounds.coupling_bound(old, new)
    theorem1 = bounds.theorem1_bound(old, new)
    assert performance >= sharp - SLACK
    assert sharp >= theorem1 - SLACK
    assert theorem1 >= bounds.kl_bound(old, new) - SLACK
    # Appendix A bounds the difference from both sides.
    alpha = bounds.max_total_variation(old.policy, new)
    error = bounds.coupling_error(old.max_advantage, problem.mdp.gamma, alpha)
    assert abs(performance - old.surrogate(new)) <= error + SLACK


@examples(400)
@given(problems(), st.floats(0.0, 1.0))
def test_mixtures_are_above_kakade_and_langford(problem: Problem, step: float):
    """Eq. 6 holds for any target, not only for the greedy one."""
    old = problem.old
    mixture = mix(old.policy, problem.new, step)
    assert problem.mdp.performance(mixture) >= bounds.mixture_bound(old, problem.new, step) - SLACK


@examples(400)
@given(problems())
def test_expected_advantages_by_state_and_by_time(problem: Problem):
    """Lemmas 2 and 3 hold, the latter with the middle term that its proof gives."""
    old, new = problem.old, problem.new
    assert np.abs(old.expected_advantage(new)).max() <= bounds.advantage_bound(old, new) + SLACK
    gaps = bounds.advantage_gaps(old, new, 30)
    middle = bounds.advantage_gap_middle_bounds(old, new, 30)
    right = bounds.advantage_gap_bounds(old, new, 30)
    assert gaps[0] == 0.0
    assert (gaps <= middle + SLACK).all()
    assert (middle <= right + SLACK).all()


def test_lemma_2_is_attained():
    """The example has one state and two actions with values ±1 around their mean."""
    mdp = FiniteMDP(np.ones((1, 2, 1)), np.array([[1.0, -1.0]]), np.ones(1), 0.9)
    old, new = mdp.evaluate(mdp.uniform_policy()), np.array([[1.0, 0.0]])
    assert old.expected_advantage(new) == pytest.approx([1.0])
    assert bounds.advantage_bound(old, new) == pytest.approx(1.0)


@examples(100)
@given(problems())
def test_errors_are_sums_of_the_gaps_over_time(problem: Problem):
    """Σ γᵗ of Lemma 3's bound is the stronger form, as in the last lines of Appendix A."""
    gamma, epsilon = problem.mdp.gamma, problem.old.max_advantage
    horizon = 4000
    by_time = bounds.advantage_gap_bounds(problem.old, problem.new, horizon)
    alpha = bounds.max_total_variation(problem.old.policy, problem.new)
    total = gamma ** np.arange(horizon) @ by_time
    assert total == pytest.approx(bounds.coupling_error(epsilon, gamma, alpha), rel=1e-9, abs=1e-12)


def test_lemma_3_as_printed_fails():
    """Its middle term 2α max_s Ā(s) violates both inequalities in some cases.

    It exceeds the right-hand side at t = 0, and is below the left-hand side if the new policy is
    worse in every state.
    """
    mdp = garnet(4, 2, 2, np.random.default_rng(3), gamma=0.9)
    old = mdp.evaluate(mdp.uniform_policy())
    better = np.eye(2)[old.advantages.argmax(axis=1)]
    worse = np.eye(2)[old.advantages.argmin(axis=1)]
    for new in (better, worse):
        alpha = bounds.max_total_variation(old.policy, new)
        printed = 2.0 * alpha * old.expected_advantage(new).max()
        if new is better:
            assert printed > bounds.advantage_gap_bounds(old, new, 1)[0] == 0.0
        else:
            assert bounds.advantage_gaps(old, new, 2)[1] > 0.0 > printed


@examples(1000)
@given(problems(state_rewards=True))
def test_perturbation_expansion(problem: Problem):
    """Appendix B's identity holds to 1e-9, its first term is L's gain, its factors are bounded."""
    old, new = problem.old, problem.new
    terms = perturbation.expand(old, new)
    assert abs(terms.total - (problem.mdp.performance(new) - old.performance)) < 1e-9
    assert abs(terms.first_order - old.surrogate_gain(new)) < 1e-9
    assert abs(terms.dual_norm - np.abs(old.expected_advantage(new)).max()) < 1e-9
    assert terms.dual_norm <= terms.dual_norm_bound + SLACK
    assert terms.density_norm <= terms.density_norm_bound + SLACK
    assert abs(terms.second_order) <= terms.second_order_bound + SLACK
    product = problem.mdp.gamma * terms.dual_norm_bound * terms.density_norm_bound
    assert terms.second_order_bound == pytest.approx(product)


def test_perturbation_refuses_rewards_of_actions():
    mdp = garnet(3, 2, 2, np.random.default_rng(0), action_rewards=True)
    policy = mdp.uniform_policy()
    with pytest.raises(ValueError, match="depend on the state alone"):
        perturbation.expand(mdp.evaluate(policy), policy)


@examples(300)
@given(problems())
def test_divergences(problem: Problem):
    p, q = problem.old.policy, problem.new
    tv, kl = bounds.total_variation(p, q), bounds.kl_divergence(p, q)
    assert (tv**2 <= kl + 1e-15).all()
    # Pinsker's inequality is stronger by a factor of 2 than the one that the paper uses.
    assert (2.0 * tv**2 <= kl + 1e-15).all()
    np.testing.assert_allclose(kl, rel_entr(p, q).sum(axis=1), rtol=1e-6, atol=1e-14)
    assert bounds.max_kl(p, q) == kl.max()
    assert bounds.max_total_variation(p, q) == tv.max()
    weights = problem.old.visitation
    seen = weights > 0.0
    expected = (weights[seen] * kl[seen]).sum() / weights.sum()
    assert bounds.mean_kl(weights, p, q) == pytest.approx(expected)


def test_divergences_by_hand():
    p, q = (
        np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]),
        np.array([[0.25, 0.75], [0.5, 0.5], [1, 0]]),
    )
    np.testing.assert_allclose(bounds.total_variation(p, q), [0.25, 0.5, 0.5])
    expected = [0.5 * np.log(2.0) + 0.5 * np.log(2.0 / 3.0), np.log(2.0), np.inf]
    np.testing.assert_allclose(bounds.kl_divergence(p, q), expected)
    # A tiny divergence is accurate: KL ≈ ½ Σ p e² for q = p (1 + e).
    near = np.array([[0.5 + 1e-9, 0.5 - 1e-9]])
    assert bounds.kl_divergence(p[:1], near)[0] == pytest.approx(2e-18, rel=1e-6, abs=0.0)


@examples(300)
@given(problems())
def test_maximal_coupling(problem: Problem):
    p, q = problem.old.policy, problem.new
    joint = bounds.maximal_coupling(p, q)
    assert (joint >= 0.0).all()
    np.testing.assert_allclose(joint.sum(axis=2), p, atol=1e-12)
    np.testing.assert_allclose(joint.sum(axis=1), q, atol=1e-12)
    agree = np.trace(joint, axis1=1, axis2=2)
    np.testing.assert_allclose(1.0 - agree, bounds.total_variation(p, q), atol=1e-12)


def test_constants_by_hand():
    assert bounds.penalty_coefficient(2.0, 0.5) == pytest.approx(16.0)
    assert bounds.theorem1_error(2.0, 0.5, 0.5) == pytest.approx(4.0)
    # 4 · ¼ · ½ · 2 / (½ · (1 − ½ · ½)) = 1 / (3/8).
    assert bounds.coupling_error(2.0, 0.5, 0.5) == pytest.approx(8.0 / 3.0)
    assert bounds.kl_error(2.0, 0.5, 0.25) == pytest.approx(4.0)
    assert bounds.kl_error(2.0, 0.0, np.inf) == 0.0


def test_without_a_penalty_the_bounds_would_not_hold():
    mdp = garnet(5, 3, 2, np.random.default_rng(0), gamma=0.9)
    pairs = [
        [random_policy(mdp, np.random.default_rng([seed, side])) for side in (0, 1)]
        for seed in range(20)
    ]
    errors = [mdp.evaluate(old).surrogate(new) - mdp.performance(new) for old, new in pairs]
    assert max(errors) > 0.1


def test_theorem_1_can_be_met_to_a_constant():
    """The error of L on this MDP has the order of the bound: 1/100 of the constant would fail."""
    # Action 1 leads from state 0 to state 1, where action 1 has a cost.
    P = np.zeros((3, 2, 3))
    P[0, 0, 0] = P[0, 1, 1] = P[1, 0, 1] = P[1, 1, 2] = P[2, :, 2] = 1.0
    mdp = FiniteMDP(P, np.array([0.0, 0.0, -1.0]), np.array([1.0, 0.0, 0.0]), 0.5)
    old = mdp.evaluate([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    alpha = 0.01
    new = np.array([[1.0 - alpha, alpha]] * 3)
    missing = old.surrogate(new) - mdp.performance(new)
    allowed = bounds.coupling_error(old.max_advantage, 0.5, alpha)
    assert allowed / 20.0 < missing < allowed
