"""Normalizes observations for the policy: standardized by running moments, or unchanged.

The moments do not change within an iteration, so the objective evaluates the policy on the same
numbers that it acted on. For pictures every pixel has its own moments, shared by all frames of a
stack. Standardizing removes the background, which is most of a screen, and leaves what moves.

    x ↦ clip((x − mean)/√(variance + ε), ±10)
"""

from collections.abc import Callable

import numpy as np

from trellis.moments import Moments
from trellis.policies.convolutions import LEVELS

OBSERVATION_LIMIT = 10.0
"""Largest absolute value of a standardized observation; larger ones are clipped."""
PICTURE_LIMIT = 127
"""Largest absolute value of a pixel of a standardized picture, a signed byte."""
LEAST_CONTRAST = 16.0
"""Standard deviation (of 255 levels) added to that of every pixel, so that pixels that rarely
change are not amplified."""

Normalizer = Callable[[np.ndarray], np.ndarray]
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

    Args:
        moments: Moments of the observations.
    """

    def __init__(self, moments: Moments):
        self.mean = moments.mean.astype(np.float32)
        self.factor = (1.0 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the standardized observations."""
        scaled = (x - self.mean) * self.factor
        return np.minimum(np.maximum(scaled, -OBSERVATION_LIMIT), OBSERVATION_LIMIT)


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
