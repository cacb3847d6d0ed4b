"""Translates between the action space of an environment and the actions that a policy samples.

A policy samples rows of numbers: Gaussian values for a Box, choices counted from 0 for discrete
spaces, and both side by side for a Dict or Tuple. `ActionMap` turns rows into actions that the
environment accepts.
"""

from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.masks import Space, parts_of

ActionKind: TypeAlias = int | tuple[int, ...] | list[Any]
"""Size of a continuous action, sizes of a discrete action's factors, or a list with the kind of
each part of a mixed action."""


class UnsupportedSpaceError(ValueError):
    """The observation space or action space is not supported by any policy."""


def action_kind(space: Space) -> ActionKind:
    """Return the size of a continuous action, or the sizes of a discrete action's factors.

    Args:
        space: Action space of one environment.

    Returns:
        An integer for a Box of floats; a tuple with one size per factor for discrete spaces; a list
        of the parts' kinds for a Dict or Tuple.

    Raises:
        UnsupportedSpaceError: No policy can sample from the space.

    Example:
        >>> action_kind(spaces.Box(-1.0, 1.0, (3,))), action_kind(spaces.MultiDiscrete([3, 3, 2]))
        (3, (3, 3, 2))
    """
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return int(np.prod(space.shape))
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    if isinstance(space, spaces.Dict | spaces.Tuple) and space.spaces:
        kinds = [action_kind(part) for _, part in parts_of(space)]
        flat = (kind if isinstance(kind, list) else [kind] for kind in kinds)
        return [kind for part in flat for kind in part]
    raise UnsupportedSpaceError(
        f"action space {type(space).__name__} is not supported; supported are Box of floats,"
        " Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the environment"
        " in a gymnasium.ActionWrapper that converts one of these into its own actions"
    )


def action_width(kind: ActionKind) -> int:
    """Return the number of columns of actions in the form that a policy samples."""
    if isinstance(kind, list):
        return sum(map(action_width, kind))
    return kind if isinstance(kind, int) else len(kind)


class ActionMap:
    """Function from actions that a policy samples to actions that the environment accepts.

    For a Box with finite bounds, the policy's [-1, 1] is stretched to the bounds and everything
    outside is clipped. A Box with one bound or none gets the actions unchanged, clipped at its
    bound. Discrete actions start at 0 in the policy and at the space's own `start` in the
    environment. For a Dict or Tuple, the columns of a row become its parts.

    Args:
        space: Action space of one environment.
    """

    def __init__(self, space: Space):
        self._space = space
        self._parts: list[tuple[Any, ActionMap, slice]] = []
        if isinstance(space, spaces.Dict | spaces.Tuple):
            start = 0
            for key, part in parts_of(space):
                stop = start + action_width(action_kind(part))
                self._parts.append((key, ActionMap(part), slice(start, stop)))
                start = stop
        if isinstance(space, spaces.Box):
            self._low, self._high, self._unit, self._middle, self._half = box_range(space)
            self._shape = space.shape

    def __call__(self, actions: NDArray[Any]) -> Any:
        """Return the environment's action for each row of `actions`."""
        space, xp = self._space, array_namespace(actions)
        if self._parts:
            mapped = {key: inner(actions[:, at]) for key, inner, at in self._parts}
            return mapped if isinstance(space, spaces.Dict) else tuple(mapped.values())
        if not isinstance(space, spaces.Box) and actions.dtype.kind == "f":
            actions = actions.astype(np.int64)  # A choice of a mixed action.
        if isinstance(space, spaces.Box):
            if actions.shape[1:] != self._shape:
                actions = xp.reshape(actions, (len(actions), *self._shape))
            if self._unit is None:
                return xp.minimum(xp.maximum(actions, self._low), self._high)
            # Clipped again, because rounding may move the sum outside the bounds.
            within = xp.minimum(xp.maximum(actions, -self._unit), self._unit)
            stretched = self._middle + self._half * within
            return xp.minimum(xp.maximum(stretched, self._low), self._high)
        if isinstance(space, spaces.Discrete):
            return xp.reshape(actions, (len(actions),)) + space.start
        if isinstance(space, spaces.MultiDiscrete):
            return xp.reshape(actions, (len(actions), *space.shape)) + space.start
        return xp.reshape(actions, (len(actions), *(space.shape or ())))


def box_range(space: spaces.Box) -> tuple[Any, Any, Any, Any, Any]:
    """Return low, high, unit, middle and half: action = middle + half·clip(sample, ±unit).

    `unit`, `middle` and `half` are None if no dimension has to be stretched.
    """
    low, high = space.low, space.high
    if np.all(low == -1) and np.all(high == 1):
        return -1.0, 1.0, None, None, None
    bounded = np.isfinite(low) & np.isfinite(high)
    if not bounded.any():
        return low, high, None, None, None
    zero, one = low.dtype.type(0), low.dtype.type(1)
    middle = np.add(low / 2, high / 2, where=bounded, out=np.full_like(low, zero))
    half = np.subtract(high / 2, low / 2, where=bounded, out=np.full_like(low, one))
    return low, high, np.where(bounded, one, np.inf).astype(low.dtype), middle, half


def flat_action(action: Any, space: Space) -> NDArray[Any]:
    """Return an action of the environment as one row: the parts of a Dict or Tuple, side by side.

    Parts keep their own units: this inverts `ActionMap` for boxes in [-1, 1] and choices from 0.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.asarray(action)
    parts = [flat_action(action[key], part) for key, part in parts_of(space)]
    return np.concatenate([np.ravel(part).astype(np.float32) for part in parts])


def array_namespace(values: Any) -> Any:
    """Return the module of an array's functions: `jax.numpy` for JAX arrays, else NumPy."""
    find = getattr(values, "__array_namespace__", None)
    return np if find is None else find()
