"""Normalizes observations for the policy: standardized by running moments, or unchanged.

The moments do not change within an iteration, so the objective evaluates the policy on the same
numbers that it acted on. For pictures every pixel has its own moments, shared by all frames of a
stack. Standardizing removes the background, which is most of a screen, and leaves what moves.

    x ↦ clip((x − mean)/√(variance + ε), ±10)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.inputs import Inputs
from trellis.moments import Moments
from trellis.policies.convolutions import LEVELS

OBSERVATION_LIMIT = 10.0
"""Largest absolute value of a standardized observation; larger ones are clipped."""
PICTURE_LIMIT = 127
"""Largest absolute value of a pixel of a standardized picture, a signed byte."""
LEAST_CONTRAST = 16.0
"""Standard deviation (of 255 levels) added to that of every pixel, so that pixels that rarely
change are not amplified."""

Normalizer = Callable[[Any], Any]
"""A function from encoded observations to the policy's inputs."""


def make_normalizer(moments: Moments, *, enabled: bool = True) -> Normalizer:
    """Return the function that standardizes observations with `moments`.

    Args:
        moments: Moments of the observations; two-dimensional ones belong to pictures.
        enabled: If False, return a function that leaves observations unchanged.
    """
    if not enabled:
        return _unchanged
    return PictureStandardizer(moments) if moments.mean.ndim == 2 else Standardizer(moments)


class Standardizer:
    """Function x ↦ (x − mean)/std, clipped to ±10, for observations that are vectors.

    What follows the features, an action mask, stays unchanged. For `Inputs`, the moments are those
    of the pixels of each picture, then those of the features.

    Args:
        moments: Moments of the observations.
    """

    def __init__(self, moments: Moments):
        self._moments = moments
        self.mean = moments.mean.astype(np.float32)
        self.factor = (1.0 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)

    def __call__(self, x: Any) -> Any:
        """Return the standardized observations."""
        if isinstance(x, Inputs):
            shapes = [picture.shape[-2:] for picture in x.pictures]
            *pictures, rows = self.parts(shapes)
            pairs = zip(pictures, x.pictures, strict=True)
            return Inputs(tuple(scale(picture) for scale, picture in pairs), rows(x.rows))
        return standardize(x, self.mean, self.factor)

    def parts(self, shapes: Sequence[tuple[int, ...]]) -> list["Normalizer"]:
        """Return the normalizer of each picture, then that of the rows.

        Args:
            shapes: (height, width) of the pictures.
        """
        found, start = [], 0
        for shape in shapes:
            stop = start + math.prod(shape)
            found.append(PictureStandardizer(_slice(self._moments, slice(start, stop), shape)))
            start = stop
        return [*found, Standardizer(_slice(self._moments, slice(start, None)))]


def standardize(x: Array, mean: Array, factor: Array) -> Array:
    """Return (x − mean)·factor, clipped to ±10, for NumPy and for JAX arrays.

    What follows the features, an action mask, stays unchanged.
    """
    xp, size = x.__array_namespace__(), mean.size
    if xp is np and x.shape[-1] == size:  # In place, because a sampler does it in every step.
        scaled = x - mean
        scaled *= factor
        np.maximum(scaled, -OBSERVATION_LIMIT, out=scaled)
        return np.minimum(scaled, OBSERVATION_LIMIT, out=scaled)
    if x.shape[-1] > size:
        scaled = standardize(x[..., :size], mean, factor)
        return xp.concatenate([scaled, x[..., size:]], axis=-1)
    return xp.minimum(xp.maximum((x - mean) * factor, -OBSERVATION_LIMIT), OBSERVATION_LIMIT)


def _slice(moments: Moments, at: slice, shape: tuple[int, ...] = (-1,)) -> Moments:
    """Return the moments of some of the values."""
    parts = (values[at].reshape(shape) for values in (moments.mean, moments.squares))
    return Moments(moments.count, *parts)


def normalizers_of(normalize: Normalizer, shapes: Sequence[tuple[int, ...]]) -> list[Normalizer]:
    """Return the normalizer of each picture of `Inputs`, then that of their rows.

    Args:
        normalize: Normalizer of whole observations.
        shapes: (height, width) of the pictures.
    """
    if isinstance(normalize, Standardizer):
        return normalize.parts(shapes)
    return [normalize] * (len(shapes) + 1)


class PictureStandardizer:
    """Function from frames (..., height, width) of bytes to (x − mean)/std as signed bytes.

    One standard deviation is `LEVELS` steps. A network recognizes standardized pictures by their
    data type.

    Args:
        moments: Moments of the pixels of a frame.
    """

    def __init__(self, moments: Moments):
        self.mean = moments.mean.astype(np.float32)
        contrast = np.sqrt(moments.variance + LEAST_CONTRAST**2)
        self.factor = (LEVELS / contrast).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the standardized frames."""
        scaled = np.rint((x - self.mean) * self.factor)
        return np.clip(scaled, -PICTURE_LIMIT, PICTURE_LIMIT, out=scaled).astype(np.int8)


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x
