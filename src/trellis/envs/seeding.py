"""Random numbers for many seeds at once.

Where episodes are ours to define, their starts are a pure function of the seed, computed for all
rows that are reset together. A `numpy` generator for each seed takes longer to make than a step of
the paper's hopper takes to simulate; this takes the same few microseconds for one row and for all.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_APART = np.uint64(0xD1342543DE82EF95)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def uniform(seeds: NDArray[np.int64], size: int, low: float, high: float) -> NDArray[np.float64]:
    """(len(seeds), size) numbers in [low, high): a stream of SplitMix64 for each seed.

    Seeds start far apart on the generator's one cycle (an odd factor maps them one to one).
    """
    counts = np.arange(1, size + 1, dtype=np.uint64) * _GOLDEN
    z = (seeds.astype(np.uint64) * _APART)[:, None] + counts
    z = (z ^ (z >> _SHIFTS[0])) * _FACTORS[0]
    z = (z ^ (z >> _SHIFTS[1])) * _FACTORS[1]
    unit = ((z ^ (z >> _SHIFTS[2])) >> _SHIFTS[3]) * 2.0**-53
    return np.asarray(low + (high - low) * unit, np.float64)
