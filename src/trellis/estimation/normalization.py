"""Running mean and variance, of observations and of returns.

They are merged batch by batch (Chan et al., 1979), in double precision. Within an iteration they do
not move: what the policy saw when it acted is what the objective sees when it judges.

Of pictures every pixel has its own statistics, the same for all frames of a stack. That takes away
what always looks the same, most of a screen, and leaves what moves.
"""

from dataclasses import dataclass

import numpy as np

from trellis.policies.convolutions import LEVELS

OBSERVATION_LIMIT = 10.0
"""Standardized observations are clipped here."""
LEAST_CONTRAST = 16.0
"""A standard deviation that every pixel has besides its own, of 255: one that hardly ever changes
is not blown up."""
MOMENTS_BYTES = 1 << 25
"""Of the rows, in double precision, that `moments_of` looks at together."""


@dataclass(frozen=True)
class Moments:
    """Count, mean, and sum of squared deviations."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """1 until there is data."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return self.squares / self.count

    def update(self, values: np.ndarray) -> "Moments":
        """With the rows of `values` added."""
        return self.merge(moments_of(values, self.mean.shape))

    def merge(self, other: "Moments") -> "Moments":
        """With the data of `other` added, which may have been seen elsewhere."""
        if not other.count:
            return self
        total = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            count=total,
            mean=self.mean + shift * (other.count / total),
            squares=self.squares + other.squares + shift**2 * (self.count * other.count / total),
        )


def moments_of(values: np.ndarray, shape: tuple[int, ...] = ()) -> Moments:
    """Of these rows alone, each of this shape."""
    values = np.asarray(values).reshape(-1, *shape)
    rows = max(1, MOMENTS_BYTES // (8 * int(np.prod(shape))))
    total = no_moments(shape)
    for start in range(0, len(values), rows):
        part = values[start : start + rows].astype(np.float64)
        mean = part.mean(axis=0)
        squares = np.square(part - mean).sum(axis=0)
        total = total.merge(Moments(np.array(float(len(part))), mean, squares))
    return total


def no_moments(shape: tuple[int, ...]) -> Moments:
    """Before any data."""
    return Moments(np.zeros(()), np.zeros(shape), np.zeros(shape))


def standardizer(moments: Moments) -> "Standardizer | PictureStandardizer":
    """For observations of these statistics."""
    return PictureStandardizer(moments) if moments.mean.ndim == 2 else Standardizer(moments)


class PictureStandardizer:
    """Frames (..., height, width) of bytes ↦ (x − mean)/std in signed bytes, `LEVELS` to a standard
    deviation: as small as they came, and what tells them from pictures as they are."""

    def __init__(self, moments: Moments):
        self._mean = moments.mean.astype(np.float32)
        contrast = np.sqrt(moments.variance + LEAST_CONTRAST**2)
        self._factor = (LEVELS / contrast).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        scaled = np.rint((x - self._mean) * self._factor)
        return np.clip(scaled, -127, 127, out=scaled).astype(np.int8)


class Standardizer:
    """x ↦ (x − mean)/std, clipped; frozen when made."""

    def __init__(self, moments: Moments):
        self._mean = moments.mean.astype(np.float32)
        self._inverse = (1.0 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        scaled = (x - self._mean) * self._inverse
        return np.minimum(np.maximum(scaled, -OBSERVATION_LIMIT), OBSERVATION_LIMIT)
