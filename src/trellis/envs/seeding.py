"""Random numbers for many seeds at once.

Where episodes are ours to define, their starts are a pure function of the seed, computed for all
rows that are reset together. A `numpy` generator for each seed takes longer to make than a step of
the paper's hopper takes to simulate; this takes the same few microseconds for one row and for all.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def uniform(seeds: NDArray[np.int64], size: int, low: float, high: float) -> NDArray[np.float64]:
    """(len(seeds), size) numbers in [low, high): SplitMix64 started from the mixed seed."""
    start = _mix(seeds.astype(np.uint64) + _GOLDEN)
    counts = np.arange(1, size + 1, dtype=np.uint64) * _GOLDEN
    unit = (_mix(start[:, None] + counts) >> np.uint64(11)) * 2.0**-53
    return np.asarray(low + (high - low) * unit, np.float64)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _FACTORS[0]
    z = (z ^ (z >> np.uint64(27))) * _FACTORS[1]
    return z ^ (z >> np.uint64(31))
