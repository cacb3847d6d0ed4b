"""Tests of conservative policy iteration: its step, its mixture and its guarantee."""

import numpy as np
import pytest
from hypothesis import given

from tests.theory.random_mdps import Problem, examples, problems
from trellis.theory import bounds
from trellis.theory.conservative import (
    best_step,
    conservative_mixture,
    conservative_policy_iteration,
    mix,
)
from trellis.theory.examples import garnet
from trellis.theory.policy_iteration import iterate, optimal_performance


@examples(500)
@given(problems())
def test_never_falls_and_keeps_its_guarantee(problem: Problem):
    old = problem.old
    for _ in range(3):
        mixture = conservative_mixture(old)
        new = problem.mdp.evaluate(mixture.policy)
        gain = new.performance - old.performance
        assert gain >= -1e-10
        assert gain >= mixture.guaranteed_gain - 1e-10
        assert mixture.guaranteed_gain >= 0.0
        assert bounds.max_total_variation(old.policy, new.policy) <= mixture.step + 1e-12
        old = new


@examples(100)
@given(problems())
def test_step_maximizes_the_bound(problem: Problem):
    old = problem.old
    mixture = conservative_mixture(old)
    best = bounds.mixture_bound(old, mixture.target, mixture.step)
    assert best - old.performance == pytest.approx(mixture.guaranteed_gain, abs=1e-9)
    for step in np.linspace(0.0, 1.0, 51):
        assert best >= bounds.mixture_bound(old, mixture.target, step) - 1e-9
    # The target is the argmax of L: no policy has a larger expected advantage.
    assert old.surrogate(mixture.target) >= old.surrogate(problem.new) - 1e-9


def test_step_by_hand():
    mdp = garnet(6, 3, 2, np.random.default_rng(4), gamma=0.9)
    old = mdp.evaluate(mdp.uniform_policy())
    target = np.eye(3)[old.advantages.argmax(axis=1)]
    epsilon = old.advantages.max()
    assert (
        np.abs(old.advantages).max() > 1.4 * epsilon
    )  # the ε of Theorem 1, which would be wrong here
    gain = old.visitation @ old.advantages.max(axis=1)
    assert best_step(old, target) == pytest.approx(gain * 0.01 / (4.0 * epsilon * 0.9))


def test_reaches_the_optimum_in_time():
    mdp = garnet(10, 3, 3, np.random.default_rng(1), gamma=0.5)
    *_, last = iterate(mdp, mdp.uniform_policy(), conservative_policy_iteration, 300)
    assert last.new.performance == pytest.approx(optimal_performance(mdp), rel=1e-6)


def test_a_step_outside_the_unit_interval_is_an_error():
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got 1\.5"):
        mix(np.ones((1, 1)), np.ones((1, 1)), 1.5)
