"""Computes count, mean and variance of data that arrives in parts.

Two parts merge exactly (Chan et al., 1979), so the moments of all shards, or of all iterations,
follow from the moments of each:

    mean = mean₁ + d·n₂/n        squares = squares₁ + squares₂ + d²·n₁n₂/n        d = mean₂ − mean₁
"""

from dataclasses import dataclass

import numpy as np

CHUNK_BYTES = 1 << 25
"""Size in bytes of the double-precision chunks that `Moments.of` works on."""


@dataclass(frozen=True)
class Moments:
    """Moments (count, mean and variance) of values that all have the same shape."""

    count: np.ndarray
    """Number of values, a scalar."""
    mean: np.ndarray
    """Mean of the values."""
    squares: np.ndarray
    """Sum of squared deviations from the mean."""

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> "Moments":
        """Return the moments of no data."""
        return cls(np.zeros(()), np.zeros(shape), np.zeros(shape))

    @classmethod
    def of(cls, values: np.ndarray, shape: tuple[int, ...] = ()) -> "Moments":
        """Return the moments of `values`, computed in double precision.

        Args:
            values: An array of values; leading axes are flattened.
            shape: Shape of one value.
        """
        values = np.asarray(values).reshape(-1, *shape)
        step = max(1, CHUNK_BYTES // (8 * int(np.prod(shape))))
        total = cls.zeros(shape)
        for start in range(0, len(values), step):
            part = values[start : start + step].astype(np.float64)
            mean = part.mean(axis=0)
            squares = np.square(part - mean).sum(axis=0)
            total = total.merge(cls(np.array(float(len(part))), mean, squares))
        return total

    @classmethod
    def of_mean(cls, mean: float, count: int, variance: float = 0.0) -> "Moments":
        """Return scalar moments from a mean and a variance that were computed elsewhere."""
        return cls(np.array(float(count)), np.array(mean), np.array(count * variance))

    @property
    def variance(self) -> np.ndarray:
        """Variance of the values; 1 while there are fewer than two values."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return self.squares / self.count

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of the values."""
        return np.sqrt(self.variance)

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of both sets of values together."""
        if not other.count:
            return self
        total = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            count=total,
            mean=self.mean + shift * (other.count / total),
            squares=self.squares + other.squares + shift**2 * (self.count * other.count / total),
        )

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the moments as arrays named `name/count`, `name/mean` and `name/squares`."""
        return {f"{name}/{part}": getattr(self, part) for part in ("count", "mean", "squares")}

    @classmethod
    def from_arrays(cls, name: str, arrays: dict[str, np.ndarray]) -> "Moments":
        """Return the moments that `to_arrays` stored under `name`."""
        return cls(*(arrays[f"{name}/{part}"] for part in ("count", "mean", "squares")))
