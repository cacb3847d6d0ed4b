"""Tests of the example MDPs."""

import numpy as np
import pytest

from trellis.theory.examples import chain, garnet, gridworld, random_policy
from trellis.theory.policy_iteration import iterate, optimal_performance, policy_iteration


def test_garnet_branches():
    mdp = garnet(30, 4, 3, np.random.default_rng(0), action_rewards=True)
    assert ((mdp.P > 0.0).sum(axis=2) == 3).all()
    assert mdp.r.shape == (30, 4)
    again = garnet(30, 4, 3, np.random.default_rng(0), action_rewards=True)
    np.testing.assert_array_equal(mdp.P, again.P)
    assert (garnet(5, 2, 1, np.random.default_rng(0)).P.max(axis=2) == 1.0).all()
    with pytest.raises(ValueError, match=r"branching must be in \[1, 5\], got 6"):
        garnet(5, 2, 6, np.random.default_rng(0))


def test_gridworld_has_the_shortest_path_as_optimum():
    mdp = gridworld("S.. .#. ..G", gamma=0.9, slip=0.0)
    assert mdp.num_states == 9
    assert optimal_performance(mdp) == pytest.approx(0.9**4)
    # With slips every path is longer.
    assert optimal_performance(gridworld("S.. .#. ..G", gamma=0.9, slip=0.2)) < 0.9**4
    assert list(np.flatnonzero(mdp.is_over)) == [8]


def test_gridworld_avoids_pits():
    mdp = gridworld("SXG ...", gamma=0.9, slip=0.0)
    *_, last = iterate(mdp, mdp.uniform_policy(), policy_iteration, 10)
    assert last.new.performance == pytest.approx(0.9**4)
    assert mdp.performance(np.eye(4)[np.ones(mdp.num_states, int)]) == pytest.approx(-0.9)


def test_gridworld_slips_in_all_directions():
    mdp = gridworld("... .S. ...", slip=0.4)
    np.testing.assert_allclose(mdp.P[4, 0, [1, 5, 7, 3]], [0.7, 0.1, 0.1, 0.1])
    # In the corner, up and left are walls, so the state does not change.
    assert mdp.P[0, 0, 0] == pytest.approx(0.6 + 0.2)


@pytest.mark.parametrize(
    ("layout", "message"),
    [("S? .G", "unknown signs"), ("S. G", "row lengths"), (".. .G", "at least one start")],
)
def test_bad_layouts_are_errors(layout, message):
    with pytest.raises(ValueError, match=message):
        gridworld(layout)


def test_chain_in_closed_form():
    gamma, n = 0.9, 6
    mdp = chain(n, gamma=gamma, small_reward=0.01)
    right = np.eye(2)[np.ones(n, int)]
    left = np.eye(2)[np.zeros(n, int)]
    assert mdp.performance(right) == pytest.approx(0.01 + gamma ** (n - 1) / (1.0 - gamma))
    assert mdp.performance(left) == pytest.approx(0.01 / (1.0 - gamma))
    np.testing.assert_allclose(chain(3, slip=0.2).P[1, 1], [0.2, 0.0, 0.8])


def test_random_policies_have_zeros_where_asked():
    mdp = garnet(50, 4, 2, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    assert (random_policy(mdp, rng) > 0.0).all()
    some = random_policy(mdp, rng, zero_share=0.5)
    assert 0.3 < (some == 0.0).mean() < 0.7
    sure = random_policy(mdp, rng, zero_share=1.0)
    assert ((sure == 1.0).sum(axis=1) == 1).all()
    for policy in (some, sure):
        mdp.check_policy(policy)
