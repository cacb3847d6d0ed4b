"""What comes out of a Gymnasium environment, checked against its space and copied into rows.

An observation space is a tree of Dict and Tuple whose leaves are arrays of a fixed shape. A batch
keeps one array per leaf, with a row per environment; writing an observation into its row checks its
structure, shape and kind, and copies, so an environment may reuse its arrays.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import Observation

FIXED_SHAPE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
# What may be converted into what: the number stays the same, only its width changes.
KINDS_TAKEN = {"f": "f", "i": "iub", "u": "iub", "b": "b"}


class MismatchError(Exception):
    """An observation or reward that its space does not have; the text says how they differ."""


class OutOfSpaceError(Exception):
    """A number of the right kind that lies outside its space, where that breaks an encoding."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: where it is in the tree, and what it must look like."""

    path: tuple[str | int, ...]
    space: spaces.Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """How error messages call it: `observation['camera'][0]`."""
        return "observation" + "".join(f"[{key!r}]" for key in self.path)

    def write(self, rows: NDArray[Any], index: int, value: Any) -> None:
        """Copies `value` into row `index` of `rows`, if it is what the space says."""
        if type(value) is not np.ndarray:
            value = self._as_array(value)
        if value.shape != self.shape:
            raise MismatchError(f"{self.name} has shape {value.shape}, its space says {self.shape}")
        if value.dtype != self.dtype:
            value = self._convert(value)
        if not self.holds(value):
            raise OutOfSpaceError(f"{self.name} is {value}, outside of {self.space}")
        rows[index] = value

    @functools.cached_property
    def _range(self) -> tuple[Any, Any] | None:
        """The least and the largest of the numbers that are encoded one by one."""
        if isinstance(self.space, spaces.Discrete):
            return self.space.start, self.space.start + self.space.n - 1
        if isinstance(self.space, spaces.MultiDiscrete):
            return self.space.start, self.space.start + self.space.nvec - 1
        return (0, 1) if isinstance(self.space, spaces.MultiBinary) else None

    def holds(self, value: NDArray[Any]) -> bool:
        """Whether an encoding has a place for `value`, or for every row of it."""
        if self._range is None:
            return True
        low, high = self._range
        return bool(np.all((value >= low) & (value <= high)))

    def _as_array(self, value: Any) -> NDArray[Any]:
        try:
            return np.asarray(value)
        except Exception as error:
            raise MismatchError(
                f"{self.name} is a {type(value).__name__} that makes no array: {error}"
            ) from error

    def _convert(self, value: NDArray[Any]) -> NDArray[Any]:
        if value.dtype.kind not in KINDS_TAKEN.get(self.dtype.kind, ""):
            raise MismatchError(
                f"{self.name} has dtype {value.dtype}, its space says {self.dtype}"
                " (only the width of a number is converted, not its kind)"
            )
        # Too large for float32 becomes infinity, which the batch reports as such.
        with np.errstate(over="ignore"):
            converted = value.astype(self.dtype)
        if self.dtype.kind in "iu" and not np.array_equal(converted, value):
            raise MismatchError(f"{self.name} holds {value.dtype} that do not fit in {self.dtype}")
        return converted


class ObservationBorder:
    """Turns observations of one environment into rows of arrays."""

    def __init__(self, space: spaces.Space[Any]):
        self.space = space
        self.leaves = list(_leaves_of(space, ()))
        self._is_array = not isinstance(space, spaces.Dict | spaces.Tuple)

    def empty(self, num_envs: int) -> list[NDArray[Any]]:
        """Zeros for every leaf, a row per environment."""
        return [np.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in self.leaves]

    def write(self, arrays: Sequence[NDArray[Any]], index: int, observation: Any) -> None:
        """Copies one observation into row `index` of the leaves."""
        if self._is_array:
            self.leaves[0].write(arrays[0], index, observation)
            return
        _check_structure(self.space, observation, "observation")
        for leaf, rows in zip(self.leaves, arrays, strict=True):
            value = observation
            for key in leaf.path:
                value = value[key]
            leaf.write(rows, index, value)

    def tree(self, arrays: Sequence[NDArray[Any]]) -> Observation:
        """The leaves as one observation of the space's own structure."""
        remaining = iter(arrays)
        return _build(self.space, remaining)

    def flatten(self, tree: Observation) -> list[NDArray[Any]]:
        """The leaves of a batch of observations, in the order of `leaves`."""
        found = []
        for leaf in self.leaves:
            value = tree
            for key in leaf.path:
                value = value[key]
            found.append(value)
        return found


def check_number(what: str, value: Any) -> float:
    """A reward as a float; anything that is not one real number is a mismatch."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "fiub":
        raise MismatchError(
            f"{what} is {type(value).__name__} of shape {array.shape} and dtype {array.dtype},"
            " not one number"
        )
    return float(array)


def check_flag(what: str, value: Any) -> bool:
    """`terminated` or `truncated` as a bool; anything but one truth value is a mismatch."""
    if type(value) is bool:
        return value
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biu":
        raise MismatchError(f"{what} is {value!r}, not True or False")
    return bool(array)


def check_action_space(space: spaces.Space[Any], env_id: str) -> None:
    """Raises `ValueError` for action spaces that no policy here draws from."""
    if not isinstance(space, FIXED_SHAPE):
        raise ValueError(
            f"{env_id} takes actions of {space}; Box, Discrete, MultiDiscrete and MultiBinary can"
            " be drawn. Wrap it in an ActionWrapper that offers one of these."
        )


def _leaves_of(space: spaces.Space[Any], path: tuple[str | int, ...]):
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _leaves_of(child, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for position, child in enumerate(space.spaces):
            yield from _leaves_of(child, (*path, position))
    elif isinstance(space, FIXED_SHAPE) and space.shape is not None and space.dtype is not None:
        yield Leaf(path, space, space.shape, np.dtype(space.dtype))
    else:
        raise ValueError(
            f"observations of {space} have no fixed shape; wrap the environment in an"
            " ObservationWrapper that gives Box, Discrete, MultiDiscrete or MultiBinary,"
            " or a Dict or Tuple of these"
        )


def _check_structure(space: spaces.Space[Any], value: Any, name: str) -> None:
    if isinstance(space, spaces.Dict):
        keys = set(value) if isinstance(value, Mapping) else None
        if keys != set(space.spaces):
            got = type(value).__name__ if keys is None else f"keys {sorted(keys, key=str)}"
            raise MismatchError(f"{name} has {got}, its space says keys {sorted(space.spaces)}")
        for key, child in space.spaces.items():
            _check_structure(child, value[key], f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise MismatchError(f"{name} is not a tuple of {len(space.spaces)}, as its space says")
        for position, child in enumerate(space.spaces):
            _check_structure(child, value[position], f"{name}[{position}]")


def _build(space: spaces.Space[Any], remaining: Any) -> Observation:
    if isinstance(space, spaces.Dict):
        return {key: _build(child, remaining) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(child, remaining) for child in space.spaces)
    return next(remaining)
