"""Translates between the spaces of an environment and the arrays of a policy.

Observations become float32 features, except pictures (`pictures.py`), which stay bytes. Actions
that a policy samples become actions that the environment accepts.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.pictures import PictureRule, picture_layout

Space: TypeAlias = spaces.Space[Any]
"""A Gymnasium space."""
Spaces = tuple[Space, Space]
"""Observation space and action space of an environment."""
Observation: TypeAlias = Any
"""An array with a row per environment, or (Dict and Tuple spaces) a pytree of such arrays."""
Encoder = Callable[[Observation], NDArray[Any]]
"""A function from a batch of observations to features."""


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
    become bytes (channels, height, width).

    Args:
        space: Observation space of one environment.
        pictures: Which boxes of bytes are pictures (`policy.pictures` of the settings).

    Returns:
        The number of features (`PictureFeatures` for pictures), and the encoder.

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
        f"observation space {type(space).__name__} is not supported; supported are Box, Discrete,"
        " MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the environment, for"
        " example with gymnasium.wrappers.FlattenObservation or TransformObservation"
    )


def action_kind(space: Space) -> int | tuple[int, ...]:
    """Return the size of a continuous action, or the sizes of a discrete action's factors.

    Args:
        space: Action space of one environment.

    Returns:
        An integer for a Box of floats; a tuple with one size per factor for discrete spaces.

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
    raise UnsupportedSpaceError(
        f"action space {type(space).__name__} is not supported; supported are Box of floats,"
        " Discrete, MultiDiscrete and MultiBinary. Wrap the environment in a"
        " gymnasium.ActionWrapper that converts one of these into its own actions"
    )


class ActionMap:
    """Function from actions that a policy samples to actions that the environment accepts.

    For a Box with finite bounds, the policy's [-1, 1] is stretched to the bounds and everything
    outside is clipped. A Box with one bound or none gets the actions unchanged, clipped at its
    bound. Discrete actions start at 0 in the policy and at the space's own `start` in the
    environment.

    Args:
        space: Action space of one environment.
    """

    def __init__(self, space: Space):
        self._space = space
        if isinstance(space, spaces.Box):
            self._low, self._high, self._unit, self._middle, self._half = box_range(space)

    def __call__(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return the environment's action for each row of `actions`."""
        space = self._space
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


def add_batch_axis(observation: Any) -> Any:
    """Return a single observation as a batch of one."""
    if isinstance(observation, dict):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(add_batch_axis(value) for value in observation)
    return np.asarray(observation)[None]


def _one_hot(values: NDArray[Any], size: Any) -> NDArray[np.float32]:
    return (values[:, None] == np.arange(int(size))).astype(np.float32)
