"""Translates between the spaces of an environment and the arrays of a policy.

Observations become float32 features, except pictures (`pictures.py`), which stay bytes. Actions
that a policy samples become actions that the environment accepts.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.inputs import Inputs
from trellis.masks import MASK_KEY, mask_size, parts_of, without_mask
from trellis.pictures import PictureRule, picture_layout

Space: TypeAlias = spaces.Space[Any]
"""A Gymnasium space."""
Spaces = tuple[Space, Space]
"""Observation space and action space of an environment."""
Observation: TypeAlias = Any
"""An array with a row per environment, or (Dict and Tuple spaces) a pytree of such arrays."""
Encoder = Callable[[Observation], Any]
"""A function from a batch of observations to features: an array, or `Inputs` for pictures and
vectors."""


class PictureFeatures(int):
    """Number of values of a picture, with the picture's shape as an attribute.

    Args:
        shape: (channels, height, width); channels are frames, colours or both.
    """

    shape: tuple[int, int, int]
    """Shape of the picture, (channels, height, width)."""

    def __new__(cls, shape: tuple[int, int, int]) -> "PictureFeatures":
        """Return the number of values of a picture of this shape."""
        features = super().__new__(cls, math.prod(shape))
        features.shape = shape
        return features


class MaskedFeatures(int):
    """Number of features of an observation, with the size of the action mask that follows them.

    Args:
        features: Number of features.
        mask: Number of entries of the mask.
    """

    mask: int
    """Number of entries of the mask."""

    def __new__(cls, features: int, mask: int) -> "MaskedFeatures":
        """Return the number of features of observations with a mask of this size."""
        number = super().__new__(cls, features)
        number.mask = mask
        return number


@dataclass(frozen=True)
class ObservationPart:
    """One part of an observation that has several."""

    name: str
    """Key of the part; keys of nested parts are joined by dots."""
    shape: tuple[int, ...]
    """(channels, height, width) of a picture, or (number of features,)."""
    encode: Encoder
    """Function from a batch of whole observations to the part's bytes or features."""

    @property
    def size(self) -> int:
        """Number of features of a vector."""
        return math.prod(self.shape)


class SeveralFeatures(int):
    """Number of statistics of an observation with pictures and vectors, with its parts.

    The statistics are one value per pixel of a frame of each picture, then one per feature.

    Args:
        pictures: Parts that are pictures.
        vectors: All other parts.
        mask: Number of entries of the action mask.
    """

    pictures: tuple[ObservationPart, ...]
    """Parts that are pictures."""
    vectors: tuple[ObservationPart, ...]
    """All other parts."""
    mask: int
    """Number of entries of the action mask, 0 without one."""

    def __new__(
        cls,
        pictures: tuple[ObservationPart, ...],
        vectors: tuple[ObservationPart, ...],
        mask: int,
    ) -> "SeveralFeatures":
        """Return the number of statistics."""
        pixels = sum(math.prod(part.shape[1:]) for part in pictures)
        number = super().__new__(cls, pixels + sum(part.size for part in vectors))
        number.pictures, number.vectors, number.mask = pictures, vectors, mask
        return number

    def __call__(self, observation: Observation) -> Inputs:
        """Return a batch of observations as pictures and rows."""
        pictures = tuple(part.encode(observation) for part in self.pictures)
        columns = [part.encode(observation) for part in self.vectors]
        if self.mask:
            legal = np.asarray(observation[MASK_KEY]) != 0
            columns.append(legal.reshape(len(legal), self.mask))
        if not columns:
            return Inputs(pictures, np.zeros((len(pictures[0]), 0), np.float32))
        return Inputs(pictures, np.concatenate(columns, axis=1, dtype=np.float32))


def moments_shape(features: int) -> tuple[int, ...]:
    """Return the shape of observation statistics: one value per feature, or per pixel of a frame.

    Args:
        features: Number of features, as `observation_encoder` returns it.
    """
    return features.shape[1:] if isinstance(features, PictureFeatures) else (features,)


class UnsupportedSpaceError(ValueError):
    """The observation space or action space is not supported by any policy."""


def observation_encoder(space: Space, pictures: PictureRule = "convolve") -> tuple[int, Encoder]:
    """Return the number of features of a space, and the function that computes them for a batch.

    Features are rows of float32. Boxes are flattened, categories become one-hot vectors, and the
    parts of a Dict or Tuple are concatenated in order. Pictures that are the whole observation
    become bytes (channels, height, width). Pictures inside of a Dict or Tuple do so too; then the
    result is `Inputs`, with everything else as one row. The reserved key `action_mask` of a Dict is
    no feature: the encoder appends it to the features as 0 and 1, and the policy separates it.

    Args:
        space: Observation space of one environment.
        pictures: Which boxes of bytes are pictures (`policy.pictures` of the settings).

    Returns:
        The number of features (`PictureFeatures` for pictures, `SeveralFeatures` for pictures and
        vectors, `MaskedFeatures` for vectors with an action mask), and the encoder.

    Raises:
        UnsupportedSpaceError: The space has a part that is not supported.

    Example:
        >>> features, encode = observation_encoder(spaces.Discrete(3))
        >>> features, encode(np.array([0, 2])).tolist()
        (3, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    """
    layout = picture_layout(space, pictures)
    if layout is not None:
        return PictureFeatures(layout.shape), layout
    mask = mask_size(space)
    if pictures == "convolve" and isinstance(space, spaces.Dict | spaces.Tuple):
        several = observation_parts(space)
        if several.pictures:
            return several, several
    if not mask:
        return _row_encoder(space)
    size, encode_rest = _row_encoder(without_mask(space))

    def append_mask(observation: Observation) -> NDArray[np.float32]:
        features, legal = encode_rest(observation), np.asarray(observation[MASK_KEY]) != 0
        return np.concatenate([features, legal.reshape(len(legal), mask)], axis=1, dtype=np.float32)

    return MaskedFeatures(size, mask), append_mask


def observation_parts(space: spaces.Dict | spaces.Tuple) -> SeveralFeatures:
    """Return the parts of a Dict or Tuple: its pictures and its vectors.

    Args:
        space: Observation space of one environment.
    """
    pictures, vectors = [], []
    for path, part in _leaves(without_mask(space)):
        layout = picture_layout(part)
        size, encode = (0, layout) if layout else _row_encoder(part)
        assert encode is not None
        name, shape = ".".join(map(str, path)), layout.shape if layout else (size,)
        kind = pictures if layout else vectors
        kind.append(ObservationPart(name, shape, functools.partial(_encode_at, path, encode)))
    return SeveralFeatures(tuple(pictures), tuple(vectors), mask_size(space))


def _leaves(space: Space, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Space]]:
    """Yield the paths and spaces of the arrays in an observation."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from _leaves(part, (*path, key))
    else:
        yield path, space


def _encode_at(path: tuple[Any, ...], encode: Encoder, observation: Observation) -> NDArray[Any]:
    for key in path:
        observation = observation[key]
    return encode(observation)


def _row_encoder(space: Space) -> tuple[int, Encoder]:
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        size = int(np.prod(space.shape))

        def flatten(observation: Observation) -> NDArray[np.float32]:
            return np.asarray(observation, np.float32).reshape(len(observation), size)

        return size, flatten
    if isinstance(space, spaces.Discrete):
        return int(space.n), lambda values: _one_hot(np.asarray(values) - space.start, space.n)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel(), np.broadcast_to(space.start, space.nvec.shape).ravel()

        def side_by_side(values: Observation) -> NDArray[np.float32]:
            columns = np.asarray(values).reshape(len(values), -1) - starts
            parts = [_one_hot(columns[:, i], size) for i, size in enumerate(sizes)]
            return np.concatenate(parts, axis=1)

        return int(sizes.sum()), side_by_side
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = [(name, *_row_encoder(part)) for name, part in named]

        def concatenate(observation: Observation) -> NDArray[np.float32]:
            encoded = [encode(observation[name]) for name, _, encode in parts]
            return np.concatenate(encoded, axis=1)

        return sum(size for _, size, _ in parts), concatenate
    raise UnsupportedSpaceError(
        f"observation space {type(space).__name__} is not supported; supported are Box, Discrete,"
        " MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the environment, for"
        " example with gymnasium.wrappers.FlattenObservation or TransformObservation"
    )


ActionKind: TypeAlias = int | tuple[int, ...] | list[Any]
"""Size of a continuous action, sizes of a discrete action's factors, or a list with the kind of
each part of a mixed action."""


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

    def __call__(self, actions: NDArray[Any]) -> Any:
        """Return the environment's action for each row of `actions`."""
        space = self._space
        if self._parts:
            mapped = {key: inner(actions[:, at]) for key, inner, at in self._parts}
            return mapped if isinstance(space, spaces.Dict) else tuple(mapped.values())
        if not isinstance(space, spaces.Box) and actions.dtype.kind == "f":
            actions = actions.astype(np.int64)  # A choice of a mixed action.
        if isinstance(space, spaces.Box):
            actions = np.reshape(actions, (len(actions), *space.shape))
            if self._unit is None:
                return np.minimum(np.maximum(actions, self._low), self._high)
            # Clipped again, because rounding may move the sum outside the bounds.
            within = np.minimum(np.maximum(actions, -self._unit), self._unit)
            stretched = self._middle + self._half * within
            return np.minimum(np.maximum(stretched, self._low), self._high)
        if isinstance(space, spaces.Discrete):
            return np.reshape(actions, (len(actions),)) + space.start
        if isinstance(space, spaces.MultiDiscrete):
            return np.reshape(actions, (len(actions), *space.shape)) + space.start
        return np.reshape(actions, (len(actions), *(space.shape or ())))


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


def is_single(observation: Any, space: Space) -> bool:
    """Return whether `observation` is a single observation rather than a batch.

    The first part of a Dict or Tuple decides.
    """
    if isinstance(space, spaces.Dict):
        name = next(iter(space.spaces))
        return is_single(observation[name], space[name])
    if isinstance(space, spaces.Tuple):
        return is_single(observation[0], space[0])
    return np.ndim(observation) == len(space.shape or ())


def flat_action(action: Any, space: Space) -> NDArray[Any]:
    """Return an action of the environment as one row: the parts of a Dict or Tuple, side by side.

    Parts keep their own units: this inverts `ActionMap` for boxes in [-1, 1] and choices from 0.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return np.asarray(action)
    parts = [flat_action(action[key], part) for key, part in parts_of(space)]
    return np.concatenate([np.ravel(part).astype(np.float32) for part in parts])


def row_of(tree: Any, index: Any) -> Any:
    """Return the observation or action of one environment, or of a slice, from those of a batch."""
    if isinstance(tree, Mapping):
        return {name: row_of(value, index) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(row_of(value, index) for value in tree)
    return tree[index]


def add_batch_axis(observation: Any) -> Any:
    """Return a single observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(add_batch_axis(value) for value in observation)
    return np.asarray(observation)[None]


def _one_hot(values: NDArray[Any], size: Any) -> NDArray[np.float32]:
    return (values[:, None] == np.arange(int(size))).astype(np.float32)
