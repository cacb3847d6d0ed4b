import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trellis.optimization.conjugate_gradient import conjugate_gradient, python_while

pytestmark = pytest.mark.usefixtures("x64")


def spd(rng, size, condition):
    q, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (q * np.geomspace(1.0, condition, size)) @ q.T


@pytest.mark.parametrize("condition", [1.0, 1e1, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_equals_a_dense_solve(condition, seed):
    rng = np.random.default_rng(seed)
    A, b = spd(rng, 20, condition), rng.normal(size=20)
    solution = conjugate_gradient(lambda v: A @ v, b, iterations=2000, tolerance=1e-13)
    np.testing.assert_allclose(solution.x, np.linalg.solve(A, b), rtol=1e-6)
    assert solution.residual <= 1e-13
    assert solution.positive


def test_product_and_residual_belong_to_x():
    rng = np.random.default_rng(0)
    A, b = spd(rng, 30, 1e3), rng.normal(size=30)
    solution = conjugate_gradient(lambda v: A @ v, b, damping=0.5, iterations=7)
    assert solution.iterations == 7
    np.testing.assert_allclose(solution.product, A @ solution.x, rtol=1e-9)
    residual = b - (A + 0.5 * np.eye(30)) @ solution.x
    np.testing.assert_allclose(
        solution.residual, np.linalg.norm(residual) / np.linalg.norm(b), rtol=1e-6
    )


def test_damping_is_added_to_the_diagonal():
    rng = np.random.default_rng(1)
    A, b = spd(rng, 10, 100.0), rng.normal(size=10)
    solution = conjugate_gradient(lambda v: A @ v, b, damping=3.0, iterations=100)
    np.testing.assert_allclose(solution.x, np.linalg.solve(A + 3 * np.eye(10), b), rtol=1e-8)


def test_it_stops_when_the_residual_is_small_enough():
    solution = conjugate_gradient(lambda v: 2.0 * v, jnp.arange(5.0), iterations=10)
    assert solution.iterations == 1


def test_zero_right_hand_side_gives_zero():
    solution = conjugate_gradient(lambda v: v, jnp.zeros(3))
    assert solution.iterations == 0
    assert not solution.x.any()
    assert solution.residual == 0


@pytest.mark.parametrize("diagonal", [[1.0, -1.0, 2.0], [0.0, 0.0, 0.0], [np.nan, 1.0, 1.0]])
def test_it_does_not_divide_by_curvature_that_is_not_positive(diagonal):
    A = np.diag(diagonal)
    solution = conjugate_gradient(lambda v: A @ v, jnp.array([0.1, 1.0, 0.1]))
    assert not solution.positive
    assert np.all(np.isfinite(solution.x))


def test_compiled_and_plain_loops_agree():
    rng = np.random.default_rng(2)
    A, b = spd(rng, 12, 50.0), rng.normal(size=12)
    compiled = jax.jit(lambda b: conjugate_gradient(lambda v: A @ v, b, iterations=6))(b)
    plain = conjugate_gradient(lambda v: A @ v, b, iterations=6, while_loop=python_while)
    np.testing.assert_allclose(compiled.x, plain.x, rtol=1e-10)
