"""Line searches along a fixed direction (App. C). No reinforcement learning here.

`backtrack` is the paper's: shrink the step exponentially until the point is acceptable, which is
where the hard constraint lives. `climb` is for a penalty instead of a constraint: it searches for
the best step. As for conjugate gradient, the loop is handed in, compiled or plain.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trellis.arrays import Array
from trellis.optimization.conjugate_gradient import WhileLoop


class Search(NamedTuple):
    """Where a search ended."""

    fraction: Array
    """Fraction of the full step at `point`."""
    point: Any
    """What `evaluate` gave at the last fraction tried (`backtrack`) or at the best (`climb`)."""
    accepted: Array
    evaluations: Array


def backtrack(
    evaluate: Callable[[Array], Any],
    acceptable: Callable[[Any], Array],
    start: Any,
    *,
    ratio: float,
    max_backtracks: int,
    enabled: Array | bool = True,
    while_loop: WhileLoop = jax.lax.while_loop,
) -> Search:
    """Return the first acceptable point of fractions 1, ratio, ratio², … of the full step.

    `evaluate(fraction)` gives a point, of the structure of `start`, the point at fraction 0. If
    none is acceptable, or the search is not `enabled`, `accepted` is False.
    """

    def unfinished(search: Search) -> Array:
        return ~search.accepted & (search.evaluations <= max_backtracks) & enabled

    def shrink(search: Search) -> Search:
        fraction = jnp.where(search.evaluations > 0, search.fraction * ratio, 1.0)
        point = evaluate(fraction)
        return Search(fraction, point, acceptable(point), search.evaluations + 1)

    none = Search(jnp.zeros((), jnp.float32), start, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    return while_loop(unfinished, shrink, none)


class _Climb(NamedTuple):
    best: Array
    point: Any
    factor: Array
    turned: Array
    evaluations: Array


def climb(
    evaluate: Callable[[Array], Any],
    height: Callable[[Any], Array],
    start: Any,
    *,
    max_evaluations: int,
    enabled: Array | bool = True,
    while_loop: WhileLoop = jax.lax.while_loop,
) -> Search:
    """Return the highest point found along the direction, starting from fraction 1.

    A pattern search on the logarithm of the fraction: multiply by a factor while that climbs, then
    by its inverse, then take the root of the factor. `height` must be −∞ where a point is no good.
    `accepted` says whether the best is higher than `start`.
    """
    ground = height(start)

    def unfinished(state: _Climb) -> Array:
        return (state.evaluations < max_evaluations) & enabled

    def probe(state: _Climb) -> _Climb:
        first = state.evaluations == 0
        candidate = jnp.where(first, state.best, state.best * state.factor)
        point = evaluate(candidate)
        higher = first | (height(point) > height(state.point))
        kept = jax.tree.map(lambda new, old: jnp.where(higher, new, old), point, state.point)
        # A miss first turns the search around, then, missing on that side too, refines it.
        refined = jnp.where(state.turned, jnp.sqrt(1.0 / state.factor), 1.0 / state.factor)
        return _Climb(
            best=jnp.where(higher, candidate, state.best),
            point=kept,
            factor=jnp.where(higher, state.factor, refined),
            turned=jnp.where(higher, state.turned & ~first, ~state.turned),
            evaluations=state.evaluations + 1,
        )

    one = jnp.ones_like(ground)
    begin = _Climb(one, start, 2.0 * one, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    end = while_loop(unfinished, probe, begin)
    return Search(end.best, end.point, (height(end.point) > ground) & enabled, end.evaluations)
