"""Tests of the KL-ball solver against SLSQP, closed forms and optimality conditions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.theory.random_mdps import Problem, examples, problems
from trellis.theory import kl_ball
from trellis.theory.bounds import kl_divergence, max_kl, mean_kl


def _rows(seed: int, num_states: int, num_actions: int, zeros: bool):
    rng = np.random.default_rng(seed)
    old = rng.dirichlet(np.ones(num_actions), size=num_states)
    if zeros:
        old[:, 0] = 0.0
        old /= old.sum(axis=1, keepdims=True)
    advantages = rng.standard_normal((num_states, num_actions))
    advantages -= (old * advantages).sum(axis=1, keepdims=True)
    return old, advantages, rng.random(num_states) + 0.1


def _best_by_slsqp(old, advantages, weights, constraint, *, penalty=0.0):
    """Maximize Σ w π A − penalty·z over policies and z, subject to constraint(π, z) ≥ 0."""
    shape = old.shape

    def split(point):
        return point[:-1].reshape(shape), point[-1]

    def solve(start):
        return minimize(
            lambda point: (
                penalty * point[-1] - weights @ (split(point)[0] * advantages).sum(axis=1)
            ),
            np.append(start.ravel(), 1.0),
            bounds=[(1e-9, 1.0)] * old.size + [(0.0, None)],
            constraints=[
                {"type": "eq", "fun": lambda point: split(point)[0].sum(axis=1) - 1.0},
                {"type": "ineq", "fun": lambda point: constraint(*split(point))},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )

    # It stops early from some starts, so the best feasible result of three is used.
    solutions = [solve((1.0 - share) * old + share / shape[1]) for share in (0.01, 0.1, 0.3)]
    feasible = [
        solution
        for solution in solutions
        if np.abs(split(solution.x)[0].sum(axis=1) - 1.0).max() < 1e-8
        and np.min(constraint(*split(solution.x))) > -1e-8
    ]
    return max(-solution.fun for solution in feasible)


def _objective(new, advantages, weights):
    return weights @ (new * advantages).sum(axis=1)


SIZES = [(seed, zeros) for seed in range(2) for zeros in (False, True)]


@pytest.mark.parametrize("radius", [0.01, 0.5])
@pytest.mark.parametrize(("seed", "zeros"), SIZES)
def test_max_kl_ball_against_slsqp(seed, zeros, radius):
    old, advantages, weights = _rows(seed, 3, 3, zeros)
    new = kl_ball.within_kl(old, advantages, radius).policy
    assert max_kl(old, new) <= radius * (1.0 + 1e-9)
    found = _best_by_slsqp(old, advantages, weights, lambda pi, z: radius - _kl(old, pi))
    assert _objective(new, advantages, weights) == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("radius", [0.01, 0.5])
@pytest.mark.parametrize(("seed", "zeros"), SIZES)
def test_mean_kl_ball_against_slsqp(seed, zeros, radius):
    old, advantages, weights = _rows(seed, 3, 3, zeros)
    new = kl_ball.within_mean_kl(old, advantages, weights, radius).policy
    assert mean_kl(weights, old, new) == pytest.approx(radius, rel=1e-9)
    assert mean_kl(weights, old, new) <= radius * (1.0 + 1e-12)
    found = _best_by_slsqp(
        old,
        advantages,
        weights,
        lambda pi, z: radius - weights @ _kl(old, pi) / weights.sum(),
    )
    assert _objective(new, advantages, weights) == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("penalty", [0.3, 3.0, 30.0])
@pytest.mark.parametrize(("seed", "zeros"), SIZES)
def test_penalty_against_slsqp(seed, zeros, penalty):
    old, advantages, weights = _rows(seed, 3, 3, zeros)
    new = kl_ball.penalized(old, advantages, weights, penalty).policy
    ours = _objective(new, advantages, weights) - penalty * max_kl(old, new)
    found = _best_by_slsqp(
        old, advantages, weights, lambda pi, z: z - _kl(old, pi), penalty=penalty
    )
    assert ours == pytest.approx(found, abs=1e-5)
    assert ours >= found - 1e-7


@pytest.mark.parametrize("penalty", [0.3, 3.0, 300.0, 3e6])
def test_penalty_is_maximal_over_radii(penalty):
    old, advantages, weights = _rows(7, 5, 4, False)

    def value(new):
        return _objective(new - old, advantages, weights) - penalty * max_kl(old, new)

    solution = kl_ball.penalized(old, advantages, weights, penalty)
    best, radius = value(solution.policy), max_kl(old, solution.policy)
    assert best > 0.0
    assert weights @ solution.multipliers == pytest.approx(penalty, rel=1e-9)
    for factor in np.geomspace(0.01, 100.0, 41):
        other = kl_ball.within_kl(old, advantages, factor * radius).policy
        assert value(other) <= best * (1.0 + 1e-9)


@examples(300)
@given(problems(), st.floats(-12.0, 1.5))
def test_optimality_conditions(problem: Problem, exponent: float):
    """The solution is feasible, on the boundary, and stationary: π(ν − A) = λp per state."""
    old, advantages, radius = problem.old.policy, problem.old.advantages, 10.0**exponent
    solution = kl_ball.within_kl(old, advantages, radius)
    new, multipliers = solution
    kl = kl_divergence(old, new)
    assert (kl <= radius * (1.0 + 1e-6) + 1e-15).all()
    np.testing.assert_allclose(new.sum(axis=1), 1.0, atol=1e-12)
    spread = np.ptp(advantages, axis=1)
    for s in np.flatnonzero((multipliers > 0.0) & (spread > 1e-9)):
        used = (old[s] > 0.0) & (new[s] > 1e-300)
        nu = advantages[s, used] + multipliers[s] * old[s, used] / new[s, used]
        scale = np.abs(nu).max()
        assert np.ptp(nu) <= 1e-7 * scale
        assert advantages[s].max() <= nu.mean() + 1e-7 * scale
        # Beyond that radius the best policy is greedy up to rounding, at a smaller divergence.
        if radius <= 0.5 and (old[s] >= 1e-3)[old[s] > 0.0].all():
            assert kl[s] == pytest.approx(radius, rel=1e-5, abs=1e-15)


@examples(200)
@given(problems(), st.floats(-6.0, 1.0))
def test_mean_ball_is_met_and_beats_the_max_ball(problem: Problem, exponent: float):
    old, advantages, weights = problem.old.policy, problem.old.advantages, problem.old.visitation
    radius = 10.0**exponent
    by_mean = kl_ball.within_mean_kl(old, advantages, weights, radius).policy
    by_max = kl_ball.within_kl(old, advantages, radius).policy
    assert mean_kl(weights, old, by_mean) <= radius * (1.0 + 1e-6)
    # The max-KL ball is inside the mean-KL ball.
    assert (
        _objective(by_mean - old, advantages, weights)
        >= _objective(by_max - old, advantages, weights) - 1e-8
    )


def test_small_and_large_radii_have_closed_forms():
    old, advantages, _ = _rows(5, 4, 3, False)
    std = np.sqrt((old * advantages**2).sum(axis=1))
    tiny = kl_ball.within_kl(old, advantages, 1e-20)
    # KL(p ‖ π) ≈ ½ Σ (π − p)²/p: the gain is std √(2t), its slope std/√(2t).
    np.testing.assert_allclose(tiny.multipliers, std / np.sqrt(2e-20), rtol=1e-8)
    greedy = np.eye(3)[advantages.argmax(axis=1)]
    np.testing.assert_allclose(kl_ball.within_kl(old, advantages, 200.0).policy, greedy, atol=1e-12)


def test_two_actions_by_a_grid():
    old, advantages = np.array([[0.3, 0.7]]), np.array([[0.7, -0.3]])
    new = kl_ball.within_kl(old, advantages, 0.1).policy
    grid = np.linspace(1e-6, 1.0 - 1e-6, 2_000_001)
    candidates = np.stack([grid, 1.0 - grid], axis=1)
    allowed = grid[kl_divergence(old, candidates) <= 0.1]
    assert new[0, 0] == pytest.approx(allowed.max(), abs=1e-6)


def test_mass_outside_of_the_support():
    """KL(old ‖ new) ignores actions that old never chooses: mass e^(−t) stays, the rest moves."""
    old, advantages = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 2.0, 1.0]])
    solution = kl_ball.within_kl(old, advantages, 0.5)
    stays = np.exp(-0.5)
    np.testing.assert_allclose(solution.policy, [[stays, 1.0 - stays, 0.0]])
    assert solution.multipliers[0] == pytest.approx(2.0 * stays)


def test_scaling_advantages_scales_multipliers_alone():
    old, advantages, _ = _rows(2, 4, 3, True)
    one = kl_ball.within_kl(old, advantages, 0.05)
    for factor in (1e-200, 1e200):
        other = kl_ball.within_kl(old, factor * advantages, 0.05)
        np.testing.assert_allclose(other.policy, one.policy, rtol=1e-9)
        np.testing.assert_allclose(other.multipliers, factor * one.multipliers, rtol=1e-9)


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e-30])
def test_hardly_any_penalty_is_greedy(penalty):
    old, advantages, weights = _rows(3, 4, 3, True)
    new = kl_ball.penalized(old, advantages, weights, penalty).policy
    np.testing.assert_allclose(new, np.eye(3)[advantages.argmax(axis=1)], atol=1e-9)
    assert np.isfinite(max_kl(old, new))


def test_nothing_to_gain_changes_nothing():
    old = np.array([[0.5, 0.5], [1.0, 0.0]])
    flat = np.array([[0.0, 0.0], [0.0, -1.0]])
    weights = np.ones(2)
    for solution in (
        kl_ball.within_kl(old, flat, 0.1),
        kl_ball.within_mean_kl(old, flat, weights, 0.1),
        kl_ball.penalized(old, flat, weights, 1.0),
        kl_ball.penalized(old, flat, weights, 0.0),
    ):
        np.testing.assert_array_equal(solution.policy, old)


def _kl(old, new):
    """Return the divergence by a formula that is defined slightly outside of the simplex too."""
    safe = np.maximum(new, 1e-12)
    return np.where(old > 0.0, old * np.log(np.where(old > 0.0, old, 1.0) / safe), 0.0).sum(axis=1)
