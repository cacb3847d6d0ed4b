"""Finds values of a batch that are not valid: not finite, or masks without a legal action."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.spaces import Observation

LARGEST = float(np.finfo(np.float32).max)
"""Largest finite number of float32."""
MOST_IN_ONE_THREAD = 10_000
"""Number of values above which BLAS would share a product among threads, and wait for them."""


def leaves(observation: Observation) -> list[NDArray[Any]]:
    """Return the arrays of an observation as a list, whatever its structure."""
    if isinstance(observation, Mapping):
        return [leaf for value in observation.values() for leaf in leaves(value)]
    if isinstance(observation, tuple):
        return [leaf for value in observation for leaf in leaves(value)]
    return [observation]


def first_not_finite(values: Observation) -> tuple[int, str] | None:
    """Return the first row that is not finite in float32, with its numbers; None if all are.

    Args:
        values: Arrays with one row per environment.
    """
    for leaf in leaves(values):
        if leaf.dtype.kind != "f" or _is_surely_finite(leaf):
            continue
        finite = np.abs(leaf) <= LARGEST
        if finite.all():
            continue
        row = int(np.argmin(finite.reshape(len(leaf), -1).all(axis=1)))
        return row, " ".join(str(leaf[row]).split())[:200]  # One line, however many there are.
    return None


def _is_surely_finite(leaf: NDArray[Any]) -> bool:
    """Return whether a quick test shows that all values are finite; False if it does not."""
    if leaf.size <= MOST_IN_ONE_THREAD:
        # The sum of squares detects any NaN or infinity. It may also overflow by itself.
        return float(np.vdot(leaf, leaf)) <= LARGEST**2
    return float(leaf.max()) <= LARGEST and float(leaf.min()) >= -LARGEST  # False for NaN.
