"""From samples and what they are worth to the `StateBatch` that the objective takes.

A single path gives every state the one action that was taken there (Sec. 5.1). A vine gives K
actions to the states of its rollout set, which alone make up L; the mean KL and the Fisher matrix
are over all states of the trunks (Sec. 5.2).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trellis.estimation.surrogate import StateBatch
from trellis.sampling.samples import Branches, Samples

ValueFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observations, ages) -> V."""


def path_batch(samples: Samples, advantage: np.ndarray, weight: np.ndarray) -> StateBatch:
    """All states of the paths, with one action each."""
    n = advantage.size
    return StateBatch(
        observation=samples.observation.reshape(n, -1),
        action=samples.action.reshape(n, 1, -1),
        log_q=samples.log_q.reshape(n, 1),
        value=advantage.reshape(n, 1).astype(np.float32),
        surrogate_weight=weight.reshape(n),
        kl_weight=weight.reshape(n),
    )


def vine_batch(samples: Samples, q: np.ndarray, weight: np.ndarray) -> StateBatch:
    """All states of the trunks; those of the rollout set with K actions and Q-values (N, K)."""
    branches = samples.branches
    if branches is None:
        raise ValueError("these samples have no branches: they come from single paths")
    steps, trunks = weight.shape
    n = steps * trunks
    rows = np.ravel_multi_index(tuple(branches.place.T), (steps, trunks))

    def spread(values: np.ndarray) -> np.ndarray:
        """Values of the rollout set among zeros for the other states."""
        everywhere = np.zeros((n, *values.shape[1:]), values.dtype)
        everywhere[rows] = values
        return everywhere

    return StateBatch(
        observation=samples.observation.reshape(n, -1),
        action=spread(branches.action),
        log_q=spread(branches.log_q),
        value=spread(q.astype(np.float32)),
        surrogate_weight=spread(weight.reshape(n)[rows]),
        kl_weight=weight.reshape(n),
    )


def rollout_values(
    branches: Branches, reward_scale: float, value_of: ValueFunction | None = None
) -> np.ndarray:
    """Q̂ = Σ γᵗ r_t (in units of `reward_scale`) and, with a value function, what remains after
    the rollout was cut, (N, K)."""
    q = branches.reward_sum / reward_scale
    if value_of is None:
        return q
    return q + branches.remaining * value_of(branches.final_observation, branches.final_age)


@dataclass(frozen=True)
class Spread:
    """Count, mean and variance of values of which others may have seen more."""

    count: int
    mean: float
    variance: float

    def merge(self, other: "Spread") -> "Spread":
        """Of both together."""
        count = self.count + other.count
        share = other.count / count
        shift = other.mean - self.mean
        within = self.variance + (other.variance - self.variance) * share
        return Spread(count, self.mean + shift * share, within + shift**2 * share * (1 - share))


def spread_of(values: np.ndarray) -> Spread:
    """Of these alone. Centered first: squares of what is far from 0 would lose digits. The mean is
    of doubles, so that of equal values it is theirs, and nothing is left of them."""
    mean = values.mean(dtype=np.float64)
    return Spread(values.size, float(mean), float((values - values.dtype.type(mean)).var()))


def spread_by_state(q: np.ndarray) -> Spread:
    """Of the differences among the actions of each state, from Q-values (N, K)."""
    differences = q - q.mean(axis=1, keepdims=True)
    return Spread(q.size, float(differences.mean()), float(differences.var()))


def rescale(values: np.ndarray, how: str, spread: Spread | None = None) -> np.ndarray:
    """Advantages (T, N) as they are ("raw"), with mean 0 ("center"), also with standard deviation 1
    ("standardize"), by the `spread` of all that there are, here or elsewhere."""
    spread = spread or spread_of(values)
    number = values.dtype.type
    if how != "raw":
        values = values - number(spread.mean)
    if how == "standardize":
        values = values / (np.sqrt(number(spread.variance)) + 1e-8)
    return values


def rescale_by_state(q: np.ndarray, how: str, spread: Spread | None = None) -> np.ndarray:
    """Q-values (N, K) likewise. Vine's estimators ignore what the actions of a state have in
    common, so the scale is that of their differences, and the mean stays."""
    if how != "standardize":
        return q
    spread = spread or spread_by_state(q)
    return q / (np.sqrt(q.dtype.type(spread.variance)) + 1e-8)


def state_weights(samples: Samples, discount: float) -> np.ndarray:
    """How much the states count, (T, N): γᵗ for ρ_π of the paper, or all the same with 1."""
    if discount == 1.0:
        return samples.weight
    return samples.weight * (discount**samples.age).astype(np.float32)
