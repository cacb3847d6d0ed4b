"""Solves A x = b by conjugate gradient, which needs only products with A (App. C).

The module is independent of policies. The loop is an argument. With `jax.lax.while_loop`, the
default, the solve is part of a compiled program. With `python_while` the products may come from
other machines. The arithmetic is the same code.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trellis.arrays import Array

WhileLoop = Callable[[Callable[[Any], Any], Callable[[Any], Any], Any], Any]
"""A function with the interface of `jax.lax.while_loop`."""


class Solution(NamedTuple):
    """Approximate solution of (A + damping·I) x = b."""

    x: Array
    """The solution x."""
    product: Array
    """A x, without the damping, so that xᵀAx costs no further product."""
    iterations: Array
    """Number of iterations, each with one product."""
    residual: Array
    """Relative residual ‖b − (A + damping·I) x‖ / ‖b‖."""
    positive: Array
    """False if some direction p had pᵀ(A + damping·I)p ≤ 0; x is the solution before it."""


class _State(NamedTuple):
    x: Array
    product: Array
    r: Array
    p: Array
    rr: Array
    iterations: Array
    positive: Array


def conjugate_gradient(
    product: Callable[[Array], Array],
    b: Array,
    *,
    damping: float = 0.0,
    iterations: int = 10,
    tolerance: float = 1e-10,
    while_loop: WhileLoop = jax.lax.while_loop,
) -> Solution:
    """Solve (A + damping·I) x = b for a symmetric matrix A, starting from x = 0.

    The solve stops after `iterations`, when the relative residual is at most `tolerance`, or at a
    direction whose curvature is not positive (or not a number). It never divides by such a
    curvature.

    Args:
        product: Function v ↦ A v.
        b: Right-hand side.
        damping: Number added to the diagonal of A.
        iterations: Largest number of iterations.
        tolerance: Relative residual at which the solve stops.
        while_loop: `jax.lax.while_loop` or `python_while`.

    Example:
        >>> A = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
        >>> conjugate_gradient(lambda v: A @ v, jnp.ones(3)).x.round(3).tolist()
        [1.0, 0.5, 0.25]
    """
    zeros = jnp.zeros_like(b)
    bb = b @ b
    enough = bb * tolerance**2

    def unfinished(state: _State) -> Array:
        return (state.iterations < iterations) & (state.rr > enough) & state.positive

    def advance(state: _State) -> _State:
        Ap = product(state.p)
        damped = Ap + damping * state.p
        curvature = state.p @ damped
        positive = curvature > 0
        alpha = jnp.where(positive, state.rr / jnp.where(positive, curvature, 1.0), 0.0)
        r = jnp.where(positive, state.r - alpha * damped, state.r)
        rr = r @ r
        return _State(
            x=jnp.where(positive, state.x + alpha * state.p, state.x),
            product=jnp.where(positive, state.product + alpha * Ap, state.product),
            r=r,
            p=r + (rr / state.rr) * state.p,
            rr=rr,
            iterations=state.iterations + 1,
            positive=positive,
        )

    start = _State(zeros, zeros, b, b, bb, jnp.zeros((), jnp.int32), jnp.ones((), bool))
    end = while_loop(unfinished, advance, start)
    residual = jnp.where(bb > 0, jnp.sqrt(end.rr / jnp.where(bb > 0, bb, 1.0)), 0.0)
    return Solution(end.x, end.product, end.iterations, residual, end.positive)


def python_while(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    """Run a loop like `jax.lax.while_loop`, in plain Python, for bodies that are not compilable."""
    while condition(state):
        state = body(state)
    return state
