"""Subtracts a baseline from Q̂ of single paths without a critic (Sec. 5.1).

The time baseline of a step is the mean Q̂ of all other environments at the same time step t of the
iteration:

    Â_t = Q̂_t − (Σ_others Q̂_t)/(n − 1) = (Q̂_t − mean_t)·n/(n − 1)

It depends on t and on other paths only, so it does not bias the gradient. At one time step all
paths have the same number of steps left, so the baseline removes the return that is missing after
the last step, also for a path that follows one that ended early. The moments of every t merge over
shards, so that a path is compared with those of all shards.

Departs from Sec. 5.1, which names no baseline.
"""

from dataclasses import dataclass

import numpy as np

from trellis.moments import Moments


@dataclass(frozen=True)
class TimeMoments:
    """Moments of Q̂ over the environments at every time step of an iteration."""

    count: np.ndarray
    """Number of environments n."""
    mean: np.ndarray
    """Mean of Q̂, (time,)."""
    squares: np.ndarray
    """Sum of squared deviations from the mean, (time,)."""

    @classmethod
    def of(cls, q: np.ndarray) -> "TimeMoments":
        """Return the moments of `q`, (time, env), computed in double precision."""
        q = q.astype(np.float64)
        mean = q.mean(axis=1)
        return cls(np.asarray(float(q.shape[1])), mean, np.square(q - mean[:, None]).sum(axis=1))

    def merge(self, other: "TimeMoments") -> "TimeMoments":
        """Return the moments of both sets of environments together."""
        count = self.count + other.count
        share, shift = other.count / count, other.mean - self.mean
        squares = self.squares + other.squares + shift**2 * self.count * share
        return TimeMoments(count, self.mean + shift * share, squares)

    def advantages(self, q: np.ndarray) -> np.ndarray:
        """Return Q̂, (time, env), minus the mean Q̂ of the other environments at the same time.

        A single environment has nothing to be compared with: its advantages are 0.
        """
        return ((q - self.mean[:, None]) * self._factor).astype(q.dtype)

    @property
    def of_advantages(self) -> Moments:
        """Moments of the advantages. Their mean is 0 at every time."""
        count = np.asarray(self.count * len(self.mean))
        return Moments(count, np.zeros(()), np.asarray((self.squares * self._factor**2).sum()))

    @property
    def _factor(self) -> float:
        """Factor n/(n − 1); 0 for a single environment."""
        return float(self.count / (self.count - 1)) if self.count > 1 else 0.0


ValueMoments = Moments | TimeMoments
"""What shards tell each other about their values, to center and scale them."""
