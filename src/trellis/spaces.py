"""Translates between the spaces of an environment and the arrays of a policy.

Observations become float32 features, except pictures (`pictures.py`), which stay bytes. Actions
that a policy samples become actions that the environment accepts. Both functions accept NumPy
arrays, which samplers use, and JAX arrays, which compiled samplers use.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.actions import UnsupportedSpaceError, array_namespace
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
        features, legal = encode_rest(observation), observation[MASK_KEY]
        xp = array_namespace(features)
        legal = (xp.asarray(legal) != 0).reshape(len(legal), mask).astype(np.float32)
        return xp.concatenate([features, legal], axis=1)

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
            xp = array_namespace(observation)
            return xp.asarray(observation, np.float32).reshape(len(observation), size)

        return size, flatten
    if isinstance(space, spaces.Discrete):
        return int(space.n), lambda values: _one_hot(values - space.start, space.n)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel(), np.broadcast_to(space.start, space.nvec.shape).ravel()

        def side_by_side(values: Observation) -> NDArray[np.float32]:
            xp = array_namespace(values)
            columns = xp.asarray(values).reshape(len(values), -1) - starts
            parts = [_one_hot(columns[:, i], size) for i, size in enumerate(sizes)]
            return xp.concatenate(parts, axis=1)

        return int(sizes.sum()), side_by_side
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = [(name, *_row_encoder(part)) for name, part in named]

        def concatenate(observation: Observation) -> NDArray[np.float32]:
            encoded = [encode(observation[name]) for name, _, encode in parts]
            return array_namespace(encoded[0]).concatenate(encoded, axis=1)

        return sum(size for _, size, _ in parts), concatenate
    raise UnsupportedSpaceError(
        f"observation space {type(space).__name__} is not supported; supported are Box, Discrete,"
        " MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the environment, for"
        " example with gymnasium.wrappers.FlattenObservation or TransformObservation"
    )


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


def count_rows(tree: Any) -> int:
    """Return the number of environments in a batch of observations or actions."""
    if isinstance(tree, Mapping):
        return count_rows(next(iter(tree.values())))
    return count_rows(tree[0]) if isinstance(tree, tuple) else len(tree)


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


def _one_hot(values: Any, size: Any) -> NDArray[np.float32]:
    xp = array_namespace(values)
    return (xp.asarray(values)[:, None] == np.arange(int(size))).astype(np.float32)
