"""Conjugate gradient: A x = b from products with A alone (App. C). No reinforcement learning here.

The loop is handed in. With `jax.lax.while_loop`, the default, the solve is part of a compiled
program; with `python_while` the products may come from anywhere, other machines included. The
arithmetic is the same code.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trellis.arrays import Array

WhileLoop = Callable[[Callable[[Any], Any], Callable[[Any], Any], Any], Any]


class Solution(NamedTuple):
    """An approximate solution of (A + damping·I) x = b."""

    x: Array
    product: Array
    """A x, without the damping: what xᵀAx is made of, at no further product."""
    iterations: Array
    residual: Array
    """‖b − (A + damping·I) x‖ / ‖b‖."""
    positive: Array
    """False if a direction p with pᵀ(A + damping·I)p ≤ 0 was met; x is what was found before it."""


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
    """Solve (A + damping·I) x = b from x = 0, for symmetric A given as v ↦ A v.

    Stops after `iterations`, once the relative residual is at most `tolerance`, or at a direction
    of curvature that is not positive (or not a number), by which it does not divide.
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
    """`jax.lax.while_loop` as plain Python, for bodies that cannot be compiled."""
    while condition(state):
        state = body(state)
    return state
