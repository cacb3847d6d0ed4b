"""Observations as the policy sees them: standardized by running moments, or unchanged.

Moments do not change within an iteration: the objective judges the policy on the same numbers that
it acted on. For pictures every pixel has its own moments, the same for all frames of a stack. That
removes the background, most of a screen, and leaves what moves.
"""

from collections.abc import Callable

import numpy as np

from trellis.moments import Moments
from trellis.policies.convolutions import LEVELS

OBSERVATION_LIMIT = 10.0
"""Standardized observations are clipped to ± this value."""
LEAST_CONTRAST = 16.0
"""Standard deviation added to every pixel's own, of 255: rare changes are not amplified."""

Normalizer = Callable[[np.ndarray], np.ndarray]
"""A function from encoded observations to what the policy sees."""


def make_normalizer(moments: Moments, *, enabled: bool = True) -> Normalizer:
    """Return the function that standardizes observations with these moments."""
    if not enabled:
        return _unchanged
    return PictureStandardizer(moments) if moments.mean.ndim == 2 else Standardizer(moments)


class Standardizer:
    """Map x to (x − mean)/std, clipped."""

    def __init__(self, moments: Moments):
        self._mean = moments.mean.astype(np.float32)
        self._inverse = (1.0 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        scaled = (x - self._mean) * self._inverse
        return np.minimum(np.maximum(scaled, -OBSERVATION_LIMIT), OBSERVATION_LIMIT)


class PictureStandardizer:
    """Map frames (..., height, width) of bytes to (x − mean)/std as signed bytes.

    One standard deviation is `LEVELS` steps. The dtype tells a network which kind it gets.
    """

    def __init__(self, moments: Moments):
        self._mean = moments.mean.astype(np.float32)
        contrast = np.sqrt(moments.variance + LEAST_CONTRAST**2)
        self._factor = (LEVELS / contrast).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        scaled = np.rint((x - self._mean) * self._factor)
        return np.clip(scaled, -127, 127, out=scaled).astype(np.int8)


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x
