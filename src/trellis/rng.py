"""Provides random streams, each a pure function of (seed, purpose, iteration, shard, lane).

No stream carries state from one iteration to the next, and no two uses share a stream. Common
random numbers (Sec. 5.2), exact resume and exact recovery of a lost worker follow from this rule.
"""

import enum

import numpy as np
from numpy.typing import NDArray


class Purpose(enum.IntEnum):
    """Purpose of a random stream. Every recorded run depends on the numbers: never reuse one."""

    POLICY_INIT = 0
    CRITIC_INIT = 1
    ACTIONS = 2
    RESETS = 3
    FISHER_ROWS = 4
    CRITIC_BATCHES = 5
    EVALUATION = 6
    ROLLOUT_SET = 7
    BRANCHES = 8
    SEARCH = 9
    BEST_EVALUATION = 10


def stream(
    seed: int, purpose: Purpose, *, iteration: int = 0, shard: int = 0, lane: int | None = None
) -> np.random.Generator:
    """Return the generator for one purpose in one iteration of one shard, or of a lane of it.

    Args:
        seed: Seed of the run.
        purpose: What the numbers are for.
        iteration: Index of the iteration.
        shard: Index of the shard.
        lane: Index of the lane; None for the whole shard.

    Example:
        >>> stream(0, Purpose.ACTIONS, iteration=3).integers(100, size=3).tolist()
        [9, 30, 45]
    """
    key = (
        (int(purpose), iteration, shard) if lane is None else (int(purpose), iteration, shard, lane)
    )
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ divided by the golden ratio: the step between consecutive states of SplitMix64."""
_SEED_FACTOR = np.uint64(0xD1342543DE82EF95)


def split_mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output of SplitMix64 for the states `z` (Steele, Lea and Flood, 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit_interval(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the upper 53 of 64 random bits as numbers in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(seeds: NDArray[np.int64], size: int, low: float, high: float) -> NDArray[np.float64]:
    """Return uniform random numbers for many seeds at once; each row depends on its seed alone.

    Creating one NumPy generator per seed takes longer than a step of the paper's hopper. This
    function has no cost per seed beyond arithmetic on arrays. Each seed has its own part of the
    cycle of SplitMix64, because multiplication by an odd factor maps seeds one to one.

    Args:
        seeds: One seed for each row.
        size: Number of random numbers in each row.
        low: Lower bound, included.
        high: Upper bound, not included.

    Returns:
        An array of shape (len(seeds), size).
    """
    counts = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    states = (seeds.astype(np.uint64) * _SEED_FACTOR)[:, None] + counts
    return np.asarray(low + (high - low) * unit_interval(split_mix(states)), np.float64)
