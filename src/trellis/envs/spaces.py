"""From the spaces of an environment to what a policy needs: features in, a kind of action out."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import Observation

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
    """Of the statistics of observations: one for each feature, or for each pixel of a frame."""
    return features.shape[1:] if isinstance(features, PictureFeatures) else (features,)


class UnsupportedSpaceError(ValueError):
    """No policy here can read this observation space or act in this action space."""


def observation_encoder(space: spaces.Space[Any]) -> tuple[int, Encoder]:
    """How many features an observation makes, and the function from a batch of observations to
    float32 rows: boxes flattened, categories one-hot, Dict and Tuple side by side in order.
    Pictures stay as they are, bytes, where there is nothing beside them."""
    pictures = picture_shape(space)
    if pictures is not None:
        return PictureFeatures(pictures), np.asarray
    return _row_encoder(space)


def _row_encoder(space: spaces.Space[Any]) -> tuple[int, Encoder]:
    if isinstance(space, spaces.Box):
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
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        return size, lambda values: np.asarray(values, np.float32).reshape(len(values), size)
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


def picture_shape(space: spaces.Space[Any]) -> tuple[int, int, int] | None:
    """(frames, height, width) where observations are stacks of pictures, else None."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return None
    frames, height, width = space.shape
    if frames > MOST_FRAMES or min(height, width) < SMALLEST_PICTURE:
        return None
    if not np.all(space.high == WHITE):  # maps of what is where, say, in 0 and 1
        return None
    return frames, height, width


def action_kind(space: spaces.Space[Any]) -> int | tuple[int, ...]:
    """The size of a continuous action, or the numbers of choices of a discrete one's factors."""
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return int(np.prod(space.shape))
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    raise UnsupportedSpaceError(
        f"actions of kind {type(space).__name__} cannot be drawn; supported are Box of floats,"
        " Discrete, MultiDiscrete and MultiBinary. Wrap the environment with a"
        " gymnasium.ActionWrapper that turns one of these into its own actions"
    )


def _one_hot(values: NDArray[Any], size: Any) -> NDArray[np.float32]:
    return (values[:, None] == np.arange(int(size))).astype(np.float32)
