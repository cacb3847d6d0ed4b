import jax.numpy as jnp
import numpy as np
import pytest

from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.line_search import backtrack, climb


def search(acceptable, **options):
    return backtrack(lambda fraction: fraction, acceptable, jnp.float32(0.0), ratio=0.5, **options)


def test_the_full_step_is_tried_first():
    result = search(lambda x: x <= 1.0, max_backtracks=10)
    assert (result.fraction, result.evaluations, result.accepted) == (1.0, 1, True)


def test_the_first_acceptable_fraction_is_returned():
    result = search(lambda x: x <= 0.3, max_backtracks=10)
    assert (result.fraction, result.point, result.evaluations) == (0.25, 0.25, 3)


def test_the_number_of_backtracks_is_limited():
    result = search(lambda x: x <= 0.3, max_backtracks=1)
    assert not result.accepted
    assert result.evaluations == 2
    assert search(lambda x: x <= 0.3, max_backtracks=2).accepted


def test_a_search_that_is_not_enabled_evaluates_nothing():
    result = search(lambda x: x <= 1.0, max_backtracks=5, enabled=jnp.bool_(False))
    assert not result.accepted
    assert (result.point, result.evaluations) == (0.0, 0)


def test_a_plain_loop_does_the_same():
    assert search(lambda x: x <= 0.3, max_backtracks=9, while_loop=python_while).fraction == 0.25


@pytest.mark.parametrize("optimum", [0.07, 0.9, 1.0, 3.3, 40.0])
def test_climb_comes_near_the_maximum(optimum):
    result = climb(
        lambda x: x,
        lambda x: x * optimum - x * x / 2,
        jnp.float32(0.0),
        max_evaluations=20,
    )
    assert result.accepted
    np.testing.assert_allclose(result.point, optimum, rtol=0.15)
    assert result.fraction == result.point


@pytest.mark.parametrize("limit", [0.9, 0.49, 0.01, 1e-6])
def test_climb_leaves_points_that_are_invalid(limit):
    result = climb(
        lambda x: x,
        lambda x: jnp.where(x <= limit, x, -jnp.inf),
        jnp.float32(0.0),
        max_evaluations=20,
    )
    assert result.accepted
    assert 0.8 * limit <= result.point <= limit


def test_climb_does_not_accept_if_everything_is_invalid():
    result = climb(lambda x: x, lambda x: jnp.where(x > 0, -jnp.inf, 0.0), 0.0, max_evaluations=8)
    assert not result.accepted
    assert result.fraction == pytest.approx(8.0**-7)


def test_climb_does_not_accept_if_everything_is_lower():
    result = climb(lambda x: x, lambda x: -x, jnp.float32(0.0), max_evaluations=8)
    assert not result.accepted
