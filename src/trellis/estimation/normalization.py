"""Running mean and variance, of observations and of returns.

They are merged batch by batch (Chan et al., 1979), in double precision. Within an iteration they do
not move: what the policy saw when it acted is what the objective sees when it judges.
"""

from dataclasses import dataclass

import numpy as np

OBSERVATION_LIMIT = 10.0
"""Standardized observations are clipped here."""


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
    values = np.asarray(values, np.float64).reshape(-1, *shape)
    if not len(values):
        return no_moments(shape)
    mean = values.mean(axis=0)
    return Moments(np.array(float(len(values))), mean, np.square(values - mean).sum(axis=0))


def no_moments(shape: tuple[int, ...]) -> Moments:
    """Before any data."""
    return Moments(np.zeros(()), np.zeros(shape), np.zeros(shape))


class Standardizer:
    """x ↦ (x − mean)/std, clipped; frozen when made."""

    def __init__(self, moments: Moments):
        self._mean = moments.mean.astype(np.float32)
        self._inverse = (1.0 / np.sqrt(moments.variance + 1e-8)).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        scaled = (x - self._mean) * self._inverse
        return np.minimum(np.maximum(scaled, -OBSERVATION_LIMIT), OBSERVATION_LIMIT)
