"""Tests of the exact gain and bias against long horizons and small discounts."""

import numpy as np
import pytest

from trellis.theory import FiniteMDP, garnet, random_policy
from trellis.theory.average import evaluate_average


def random_problem(seed: int):
    rng = np.random.default_rng(seed)
    mdp = garnet(6, 3, 4, rng, action_rewards=True)
    return mdp, random_policy(mdp, rng)


@pytest.mark.parametrize("seed", range(10))
def test_the_gain_is_the_limit_of_discounted_values(seed):
    mdp, policy = random_problem(seed)
    found = evaluate_average(mdp, policy)
    gamma = 1 - 1e-6
    near = FiniteMDP(mdp.P, mdp.r, mdp.rho0, gamma).evaluate(policy)
    np.testing.assert_allclose((1 - gamma) * near.values, found.gain, atol=1e-4)
    differences = near.values - near.values[0]
    np.testing.assert_allclose(differences, found.bias - found.bias[0], atol=1e-4)
    np.testing.assert_allclose(near.advantages, found.advantages, atol=1e-4)


def test_the_bias_has_mean_zero_and_satisfies_its_equation():
    mdp, policy = random_problem(3)
    found = evaluate_average(mdp, policy)
    assert found.stationary @ found.bias == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose((policy * found.advantages).sum(axis=1), 0, atol=1e-12)


def test_terminal_states_continue_from_the_start_at_a_cost():
    # 0 → 1 → terminal 2: the cycle has two steps, rewards 3 and 1, and one reset.
    P = [[[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]]
    mdp = FiniteMDP(P, [3.0, 1.0, 0.0], [1.0, 0.0, 0.0], 0.9)
    found = evaluate_average(mdp, np.ones((3, 1)), reset_cost=2.0)
    assert found.gain == pytest.approx((3 + 1 - 2) / 2)
    np.testing.assert_allclose(found.stationary, [0.5, 0.5, 0.0], atol=1e-12)
    assert found.bias[0] - found.bias[1] == pytest.approx(3 - found.gain)


def test_two_recurrent_classes_and_terminal_starts_are_errors():
    stay = FiniteMDP(np.eye(2)[:, None, :], [1.0, 2.0], [0.5, 0.5], 0.9)
    with pytest.raises(ValueError, match="several recurrent classes"):
        evaluate_average(stay, np.ones((2, 1)))
    over = FiniteMDP(np.eye(2)[:, None, :], [1.0, 0.0], [0.5, 0.5], 0.9)
    with pytest.raises(ValueError, match="terminal state"):
        evaluate_average(over, np.ones((2, 1)))
