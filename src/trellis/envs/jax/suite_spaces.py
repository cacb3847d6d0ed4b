"""Builds Gymnasium spaces for environments of JAX suites.

Suites describe their spaces in different ways, and some descriptions are wrong. Shapes and data
types therefore come from the observations themselves.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from trellis.spaces import Space

MASK = "action_mask"
"""Reserved key of a Dict observation: which actions are allowed."""


def space_of(example: Any) -> Space:
    """Return the space of an observation from its shapes and data types.

    Floats become an unbounded Box, booleans MultiBinary, and integers a Box with the range of their
    type. Mappings become a Dict.

    Args:
        example: An observation, or its shapes from `jax.eval_shape`.
    """
    if isinstance(example, Mapping):
        return spaces.Dict({name: space_of(part) for name, part in example.items()})
    shape, dtype = tuple(example.shape), np.dtype(example.dtype)
    if dtype == np.bool_:
        return spaces.MultiBinary(shape or (1,))
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    limits = np.iinfo(dtype)
    return spaces.Box(int(limits.min), int(limits.max), shape, np.dtype(dtype).type)


def shape_of_reset(reset: Any) -> Any:
    """Return the shapes and data types of a function of a raw key."""
    return jax.eval_shape(reset, jax.ShapeDtypeStruct((2,), np.uint32))


def box(low: Any, high: Any, shape: tuple[int, ...]) -> spaces.Box:
    """Return a Box of float32 with these bounds, which may be scalars."""
    low, high = (np.broadcast_to(np.asarray(b, np.float32), shape) for b in (low, high))
    return spaces.Box(low.copy(), high.copy(), shape, np.float32)


def as_dict(observation: Any) -> Any:
    """Return named tuples and mappings of an observation as dictionaries, at every level."""
    fields = getattr(observation, "_fields", None)
    if fields is not None:
        return {name: as_dict(getattr(observation, name)) for name in fields}
    if isinstance(observation, Mapping):
        return {str(name): as_dict(part) for name, part in observation.items()}
    return observation
