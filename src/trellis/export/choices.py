"""Translates action distributions into operations: the most probable action of the environment."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis.actions import box_range
from trellis.export.features import categories
from trellis.export.program import Builder, ExportError, Operation, Output, clip, reshape
from trellis.masks import parts_of
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.gaussians import LARGEST_ACTION, SquashedGaussian
from trellis.policies.product import Product
from trellis.spaces import Space

ACTION = "action"
"""Name of the output. Parts of a Dict or Tuple append theirs: action.move."""


def add_actions(
    builder: Builder, distribution: Any, space: Space, outputs: int, mask: int | None
) -> Iterator[Output]:
    """Append the choice of the most probable action, and yield its arrays.

    Args:
        builder: Program so far.
        distribution: Distribution of the policy.
        space: Action space.
        outputs: Outputs of the network.
        mask: Numbers to add to the logits, so that illegal actions are never chosen.

    Raises:
        ExportError: The distribution has no export.
    """
    parts = distribution_parts(distribution)
    edges = [0, *itertools.accumulate(part.num_outputs for part in parts)]
    leaves, first = [*action_leaves(space)], 0
    for (path, leaf), part, start in zip(leaves, parts, edges[:-1], strict=True):
        is_choice = isinstance(part, Categoricals)
        _require_supported(part, leaf)
        # Log stds that depend on the state follow the means.
        stop = start + (part.num_outputs if is_choice else part.size)
        whole = start == 0 and stop == distribution.num_outputs
        value = outputs if whole else builder.columns(outputs, start, stop)
        if is_choice and mask is not None:
            last = first + part.num_outputs
            alone = sum(p.num_outputs for p in parts if isinstance(p, Categoricals)) == last - first
            own = mask if alone else builder.columns(mask, first, last)
            value, first = builder.node("add", value, own), last
        dtype, operations = _choose(part, leaf)
        value = builder.run(value, operations)
        name = ".".join([ACTION, *map(str, path)])
        yield Output(name, leaf.shape or (), dtype, value, path)


def distribution_parts(distribution: Any) -> tuple[Any, ...]:
    """Return the distributions of the parts of a mixed action, or the only one."""
    return distribution.parts if isinstance(distribution, Product) else (distribution,)


def action_leaves(space: Space, path: tuple = ()) -> Iterator[tuple[tuple[str | int, ...], Space]]:
    """Yield the paths and spaces of the arrays in an action."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from action_leaves(part, (*path, key))
    else:
        yield path, space


def _require_supported(distribution: Any, space: Space) -> None:
    base = distribution.base if isinstance(distribution, SquashedGaussian) else distribution
    gaussian = isinstance(base, DiagGaussian) and isinstance(space, spaces.Box)
    if not gaussian and not isinstance(base, Categoricals):
        raise ExportError(
            f"a policy with a distribution of class {type(base).__name__} cannot be exported:"
            " supported are Gaussians, Categoricals and products of them"
        )


def _choose(distribution: Any, space: Space) -> tuple[np.dtype, list[Operation]]:
    """Return the operations from means or logits to actions, and their data type."""
    if isinstance(distribution, Categoricals):
        operations = [Operation("argmax", np.array(distribution.sizes))]
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            starts = np.array(categories(space)[1])
            operations += [Operation("add", starts)] if starts.any() else []
        return np.dtype(np.int64), [*operations, reshape(*(space.shape or ()))]
    assert isinstance(space, spaces.Box)
    low, high, unit, middle, half = box_range(space)
    dtype = np.result_type(np.float32, low)
    operations = [reshape(*space.shape), Operation("cast", np.zeros((), dtype))]
    if isinstance(distribution, SquashedGaussian):
        operations = [Operation("tanh"), *clip(-LARGEST_ACTION, LARGEST_ACTION), *operations]
    if unit is not None:
        operations += [
            *clip(-unit, unit, dtype),
            Operation("multiply", half.astype(dtype)),
            Operation("add", middle.astype(dtype)),
        ]
    return dtype, [*operations, *clip(low, high, dtype)]
