"""Merges the answers of shards along a fixed binary tree.

Rounding depends on the order of sums, so the order depends on the number of shards alone: the tree
halves the shards, in their order, down to one. Every worker of a cluster holds the shards of one
node of the tree and sends one answer. The result therefore has the same bits for every number of
workers.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

Span = tuple[int, int]
"""Range of shards: first index, and the index after the last."""
Answer = TypeVar("Answer")


def merge_answers(one: Any, other: Any) -> Any:
    """Merge two answers of the same kind.

    Objects with a `merge` method merge themselves. Tuples are merged field by field, numbers and
    arrays are added, lists are joined, and None stays None.
    """
    if hasattr(one, "merge"):
        return one.merge(other)
    if one is None:
        return None
    if isinstance(one, tuple):
        parts = [merge_answers(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def reduce_tree(span: Span, answers: Mapping[Span, Answer]) -> Answer:
    """Return the merged answer of the shards of `span`, from the answers of nodes below it."""
    if span in answers:
        return answers[span]
    left, right = _halves(span)
    return merge_answers(reduce_tree(left, answers), reduce_tree(right, answers))


def divide(span: Span, workers: int) -> list[Span]:
    """Return a node of the tree for each worker, with shards divided as evenly as possible."""
    if workers == 1:
        return [span]
    left, right = _halves(span)
    more = (workers + 1) // 2
    return divide(left, more) + divide(right, workers - more)


def _halves(span: Span) -> tuple[Span, Span]:
    first, last = span
    middle = (first + last + 1) // 2
    return (first, middle), (middle, last)
