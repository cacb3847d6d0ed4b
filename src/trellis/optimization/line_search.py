"""Implements line searches along a fixed direction (App. C), independent of policies.

`backtrack` is the paper's line search: it shrinks the step exponentially until the point is
acceptable, which enforces the KL constraint. `climb` is for a penalty instead of a constraint: it
searches for the best step. The loop is an argument: `jax.lax.while_loop` compiles the search, and
`python_while` runs it as plain Python.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trellis.arrays import Array
from trellis.optimization.conjugate_gradient import WhileLoop

SHRINK = 1 / 8
"""Factor by which `climb` shrinks the fraction while all points are invalid."""


class Search(NamedTuple):
    """Result of a line search."""

    fraction: Array
    """Fraction of the full step at `point`."""
    point: Any
    """Result of `evaluate` at the last fraction (`backtrack`) or at the best one (`climb`)."""
    accepted: Array
    """Whether the point is acceptable (`backtrack`) or better than the start (`climb`)."""
    evaluations: Array
    """Number of calls of `evaluate`."""


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
    """Return the first acceptable point among the fractions 1, ratio, ratio², … of the full step.

    Args:
        evaluate: Function from a fraction to a point, a pytree.
        acceptable: Function from a point to whether it is acceptable.
        start: The point at fraction 0, with the structure of all points.
        ratio: Factor by which the step shrinks.
        max_backtracks: Largest number of times that the step shrinks.
        enabled: Whether to search at all.
        while_loop: `jax.lax.while_loop` or `python_while`.

    Returns:
        The search. `accepted` is False if no point is acceptable or the search is not enabled.

    Example:
        >>> search = backtrack(lambda x: x, lambda x: x < 0.3, 0.0, ratio=0.5, max_backtracks=10)
        >>> float(search.fraction), int(search.evaluations)
        (0.25, 3)
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

    This is a pattern search on the logarithm of the fraction. It multiplies the fraction by a
    factor while the point gets higher, then by the inverse factor, then by its square root. If the
    first point is invalid, it shrinks the fraction until a point is valid.

    Args:
        evaluate: Function from a fraction to a point, a pytree.
        height: Function from a point to its height; −∞ for invalid points.
        start: The point at fraction 0, with the structure of all points.
        max_evaluations: Number of calls of `evaluate`.
        enabled: Whether to search at all.
        while_loop: `jax.lax.while_loop` or `python_while`.

    Returns:
        The search. `accepted` is True if the best point is higher than `start`.
    """
    ground = height(start)

    def unfinished(state: _Climb) -> Array:
        return (state.evaluations < max_evaluations) & enabled

    def probe(state: _Climb) -> _Climb:
        first = state.evaluations == 0
        candidate = jnp.where(first, state.best, state.best * state.factor)
        point = evaluate(candidate)
        invalid = jnp.isneginf(height(point))
        invalid_so_far = first | jnp.isneginf(height(state.point))
        higher = invalid_so_far | (height(point) > height(state.point))
        kept = jax.tree.map(lambda new, old: jnp.where(higher, new, old), point, state.point)
        # The first miss reverses the direction; a miss on both sides refines the factor.
        refined = jnp.where(state.turned, jnp.sqrt(1.0 / state.factor), 1.0 / state.factor)
        return _Climb(
            best=jnp.where(higher, candidate, state.best),
            point=kept,
            factor=jnp.where(higher, jnp.where(invalid, SHRINK, state.factor), refined),
            turned=jnp.where(higher, (state.turned & ~first) | invalid, ~state.turned),
            evaluations=state.evaluations + 1,
        )

    one = jnp.ones_like(ground)
    begin = _Climb(one, start, 2.0 * one, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    end = while_loop(unfinished, probe, begin)
    return Search(end.best, end.point, (height(end.point) > ground) & enabled, end.evaluations)
