"""Subtracts a baseline from Q̂ of single paths without a critic (Sec. 5.1).

The time baseline of a step is the mean Q̂ of all other paths at the same time t of their episodes:

    Â_t = Q̂_t − (Σ_others Q̂_t)/(n_t − 1) = (Q̂_t − mean_t)·n_t/(n_t − 1)

It depends on t and on other paths only, so it does not bias the gradient. It removes what all paths
share, above all the return that is missing after their last step. The moments of every t merge over
shards, so that a path is compared with those of all shards.

Departs from Sec. 5.1, which names no baseline.
"""

from dataclasses import dataclass

import numpy as np

from trellis.moments import Moments


@dataclass(frozen=True)
class TimeMoments:
    """Moments of Q̂ at every time t of the episodes."""

    count: np.ndarray
    """Number of paths n_t, (time,)."""
    mean: np.ndarray
    """Mean of Q̂, (time,)."""
    squares: np.ndarray
    """Sum of squared deviations from the mean, (time,)."""

    @classmethod
    def of(cls, q: np.ndarray, age: np.ndarray) -> "TimeMoments":
        """Return the moments of `q`, computed in double precision; `age` is t of every value."""
        q, age = q.ravel().astype(np.float64), age.ravel()
        count = np.bincount(age).astype(np.float64)
        mean = np.bincount(age, q) / np.maximum(count, 1)
        return cls(count, mean, np.bincount(age, np.square(q - mean[age])))

    def merge(self, other: "TimeMoments") -> "TimeMoments":
        """Return the moments of both sets of values together."""
        length = max(len(self.count), len(other.count))
        one, two = self._padded(length), other._padded(length)
        count = one.count + two.count
        share = two.count / np.maximum(count, 1)
        shift = two.mean - one.mean
        squares = one.squares + two.squares + shift**2 * one.count * share
        return TimeMoments(count, one.mean + shift * share, squares)

    def advantages(self, q: np.ndarray, age: np.ndarray) -> np.ndarray:
        """Return Q̂ minus the mean Q̂ of the other paths at the same time.

        A path that is alone at a time has nothing to be compared with: its advantage is 0.
        """
        return ((q - self.mean[age]) * self._factor[age]).astype(q.dtype)

    @property
    def of_advantages(self) -> Moments:
        """Moments of the advantages. Their mean is 0 at every time."""
        count = np.asarray(self.count.sum())
        return Moments(count, np.zeros(()), np.asarray((self.squares * self._factor**2).sum()))

    @property
    def _factor(self) -> np.ndarray:
        """Factor n/(n − 1) of every time; 0 for a path that is alone."""
        return np.where(self.count > 1, self.count / np.maximum(self.count - 1, 1), 0.0)

    def _padded(self, length: int) -> "TimeMoments":
        add = (0, length - len(self.count))
        return TimeMoments(*(np.pad(x, add) for x in (self.count, self.mean, self.squares)))


ValueMoments = Moments | TimeMoments
"""What shards tell each other about their values, to center and scale them."""
