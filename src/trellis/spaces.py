"""Between the spaces of an environment and a policy: features in, a kind of action out.

Observations become float32 features (or stay pictures), and what a policy samples becomes an action
that the environment accepts.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Space: TypeAlias = spaces.Space[Any]
"""A Gymnasium space."""
Spaces = tuple[Space, Space]
"""Observation space and action space of an environment."""
Observation: TypeAlias = Any
"""An array with a row per environment, or (Dict and Tuple spaces) a pytree of such arrays."""
Encoder = Callable[[Observation], NDArray[Any]]
MOST_FRAMES = 16
"""In a stack of pictures: this tells (frames, height, width) from (height, width, colours)."""
WHITE = 255
SMALLEST_PICTURE = 10
"""Height and width that two convolutions leave something of."""


class PictureFeatures(int):
    """How many values a picture has, and its shape: (frames, height, width)."""

    shape: tuple[int, int, int]

    def __new__(cls, shape: tuple[int, int, int]) -> "PictureFeatures":
        features = super().__new__(cls, math.prod(shape))
        features.shape = shape
        return features


def moments_shape(features: int) -> tuple[int, ...]:
    """Return the shape of observation statistics: a value per feature, or per pixel of a frame."""
    return features.shape[1:] if isinstance(features, PictureFeatures) else (features,)


class UnsupportedSpaceError(ValueError):
    """No policy here can read this observation space or act in this action space."""


def observation_encoder(space: Space) -> tuple[int, Encoder]:
    """Return the number of features, and the function from a batch of observations to features.

    Features are rows of float32: boxes flattened, categories one-hot, parts of a Dict or Tuple side
    by side in order. Pictures that are the whole observation stay as they are, bytes.
    """
    pictures = picture_shape(space)
    if pictures is not None:
        return PictureFeatures(pictures), np.asarray
    return _row_encoder(space)


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
        f"observations of kind {type(space).__name__} cannot be read; supported are Box, Discrete,"
        " MultiDiscrete, MultiBinary, and Dict and Tuple of them. Wrap the environment, for example"
        " with gymnasium.wrappers.FlattenObservation or TransformObservation"
    )


def picture_shape(space: Space) -> tuple[int, int, int] | None:
    """Return (frames, height, width) if observations are stacks of pictures, else None."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return None
    frames, height, width = space.shape
    if frames > MOST_FRAMES or min(height, width) < SMALLEST_PICTURE:
        return None
    if not np.all(space.high == WHITE):  # maps of what is where, say, in 0 and 1
        return None
    return frames, height, width


def action_kind(space: Space) -> int | tuple[int, ...]:
    """Return the size of a continuous action, or the sizes of a discrete action's factors."""
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return int(np.prod(space.shape))
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    raise UnsupportedSpaceError(
        f"actions of kind {type(space).__name__} cannot be sampled; supported are Box of floats,"
        " Discrete, MultiDiscrete and MultiBinary. Wrap the environment with a"
        " gymnasium.ActionWrapper that turns one of these into its own actions"
    )


class ActionMap:
    """Maps what a policy samples to what the environment accepts; clipping happens here.

    A Box with finite bounds is covered by the policy's [-1, 1], and what lies outside is clipped
    (for the common [-1, 1] this is clipping alone). A Box with one bound or none takes actions as
    they are, within that bound. Discrete kinds count from 0 in the policy and from the space's own
    start in the environment.
    """

    def __init__(self, space: Space):
        self._space = space
        if isinstance(space, spaces.Box):
            self._low, self._high, self._unit, self._middle, self._half = _box_range(space)

    def __call__(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return a row for each row of `actions`, in the environment's own terms."""
        space = self._space
        if isinstance(space, spaces.Box):
            actions = np.reshape(actions, (len(actions), *space.shape))
            if self._unit is None:
                return np.minimum(np.maximum(actions, self._low), self._high)
            # Clipped again: the sum may round to a place outside.
            within = np.minimum(np.maximum(actions, -self._unit), self._unit)
            stretched = self._middle + self._half * within
            return np.minimum(np.maximum(stretched, self._low), self._high)
        if isinstance(space, spaces.Discrete):
            return np.reshape(actions, (len(actions),)) + space.start
        if isinstance(space, spaces.MultiDiscrete):
            return np.reshape(actions, (len(actions), *space.shape)) + space.start
        return np.reshape(actions, (len(actions), *(space.shape or ())))


def _box_range(space: spaces.Box) -> tuple[Any, Any, Any, Any, Any]:
    """Return the bounds, and, where an interval has to be stretched, the half width of what is
    taken from the policy and the middle and half width of what it becomes."""
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
    """Whether this is one observation rather than a batch of them, judged by its first part."""
    if isinstance(space, spaces.Dict):
        name = next(iter(space.spaces))
        return is_single(observation[name], space[name])
    if isinstance(space, spaces.Tuple):
        return is_single(observation[0], space[0])
    return np.ndim(observation) == len(space.shape or ())


def add_batch_axis(observation: Any) -> Any:
    """Return one observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(add_batch_axis(value) for value in observation)
    return np.asarray(observation)[None]


def _one_hot(values: NDArray[Any], size: Any) -> NDArray[np.float32]:
    return (values[:, None] == np.arange(int(size))).astype(np.float32)
