"""How the answers of shards become one: sums, means by count, maxima, along a fixed binary tree.

Rounding depends on the order of sums, so the order is a function of the number of shards alone: the
tree halves the shards, in their order, down to one. Every worker holds the shards of one node of
that tree, adds them up by itself and sends one answer, and the rest of the tree is added up where
the answers arrive. Whoever held which shards, the result has the same bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Span = tuple[int, int]
"""Shards from the first up to, not including, the second."""


@dataclass(frozen=True)
class Mean:
    """A mean by count: of numbers, or of the arrays of a dictionary."""

    count: int
    value: Any

    def merge(self, other: "Mean") -> "Mean":
        """Of both together."""
        count = self.count + other.count
        return Mean(count, _average(self.value, other.value, other.count / count))


@dataclass(frozen=True)
class Maximum:
    """The largest; not a number, if any is."""

    value: Any

    def merge(self, other: "Maximum") -> "Maximum":
        """Of both."""
        return Maximum(np.maximum(self.value, other.value))


def combine(one: Any, other: Any) -> Any:
    """Two answers of the same kind as one: field by field; lists are strung together."""
    if hasattr(one, "merge"):
        return one.merge(other)
    if one is None:
        return None
    if isinstance(one, tuple):
        pairs = [combine(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*pairs) if hasattr(one, "_fields") else tuple(pairs)
    return one + other


def reduce_tree(span: Span, answers: Mapping[Span, Any]) -> Any:
    """The answer of the shards of `span` from those of nodes below it in the tree."""
    if span in answers:
        return answers[span]
    left, right = _halves(span)
    return combine(reduce_tree(left, answers), reduce_tree(right, answers))


def divide(span: Span, workers: int) -> list[Span]:
    """A node of the tree for each worker, as even as the tree allows."""
    if workers == 1:
        return [span]
    left, right = _halves(span)
    more = (workers + 1) // 2
    return divide(left, more) + divide(right, workers - more)


def _halves(span: Span) -> tuple[Span, Span]:
    first, last = span
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)


def _average(one: Any, other: Any, share: float) -> Any:
    if isinstance(one, dict):
        return {name: _average(one[name], other[name], share) for name in one}
    if np.asarray(one).dtype.kind in "iu":  # A number of steps, say: there is none in between.
        return np.maximum(one, other)
    return one + (other - one) * share
