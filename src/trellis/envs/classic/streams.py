"""Runs many NumPy generators at once, as arithmetic on arrays: `Streams`.

Gymnasium gives every environment its own `np_random`, which is `np.random.default_rng(seed)`: a
PCG64 generator (O'Neill, 2014) that a SeedSequence initializes. A batch that equals Gymnasium's
environments bit for bit needs the same numbers. A call into one generator per environment takes
longer than the step itself, so this module computes the numbers of all generators together. The
128-bit state of a generator is kept as two words of 64 bits.
"""

import numpy as np
from numpy.typing import NDArray

from trellis.rng import unit_interval

Words = NDArray[np.uint64]
"""Words of 64 bits, one for each generator."""
WIDTH = 6
"""Words per generator: state and increment (high, low), whether half a word is left, and that."""
_MULTIPLIER = (0x2360ED051FC65DA4, 0x4385DF649FCCF645)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_POOL = 4
"""Number of words in the pool of a SeedSequence."""
_MASK = 0xFFFFFFFF
FEW = 16
"""Number of seeds below which one call of NumPy for each takes less time than array arithmetic."""


class Streams:
    """The generators `np.random.default_rng(seed)` of a batch, one per environment.

    Args:
        count: Number of generators.

    Example:
        >>> streams = Streams(2)
        >>> streams.seed(np.arange(2), np.array([5, 7]))
        >>> float(streams.random(np.array([1]))[0]) == np.random.default_rng(7).random()
        True
    """

    def __init__(self, count: int):
        self.words = np.zeros((WIDTH, count), np.uint64)
        """State of the generators, one column each."""

    def seed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Start the generators `ids` from one seed each, like `np.random.default_rng(seed)`."""
        start_high, start_low, high, low = _seed_words(seeds)
        one = np.uint64(1)
        increment = (high << one) | (low >> np.uint64(63)), (low << one) | one
        state = _advance(_add(increment, (start_high, start_low)), increment)
        left = np.zeros_like(high)
        self.words[:, ids] = np.stack([*state, *increment, left, left])

    def random(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the next `random()` of each of the generators `ids`."""
        return unit_interval(self._next(ids))

    def uniform(
        self, ids: NDArray[np.int64], size: int, low: float, high: float
    ) -> NDArray[np.float64]:
        """Return the next `uniform(low, high, size)` of each generator, (len(ids), size)."""
        columns = [self.random(ids) for _ in range(size)]
        return low + (high - low) * np.stack(columns, axis=1)

    def integers(self, ids: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the next `integers(count)` of each of the generators `ids`.

        This is also the index that `choice` of a list of `count` items uses. The method is that of
        Lemire (2019): the upper half of a product, and a new number where that would be biased.
        """
        product = self._next_half(ids) * np.uint64(count)
        threshold = np.uint64((2**32 - count) % count)
        while (biased := np.flatnonzero((product & _LOW) < threshold)).size:
            product[biased] = self._next_half(ids[biased]) * np.uint64(count)
        return (product >> _HALF).astype(np.int64)

    def _next(self, ids: NDArray[np.int64]) -> Words:
        """Return the next 64 bits of each of the generators `ids`."""
        high, low, *increment = self.words[:4, ids]
        high, low = _advance((high, low), (increment[0], increment[1]))
        self.words[0, ids], self.words[1, ids] = high, low
        mixed, turn = high ^ low, high >> np.uint64(58)
        return (mixed >> turn) | (mixed << (-turn & np.uint64(63)))

    def _next_half(self, ids: NDArray[np.int64]) -> Words:
        """Return the next 32 bits of each generator: half of 64, and later the other half."""
        left = self.words[4, ids] != 0
        bits = self.words[5, ids]
        fresh = ids[~left]
        word = self._next(fresh)
        bits[~left] = word & _LOW
        self.words[5, fresh] = word >> _HALF
        self.words[4, ids] = ~left
        return bits


def _multiply(a: Words, b: int) -> tuple[Words, Words]:
    """Return the high and low word of the 128-bit product of `a` and a word `b`."""
    low_b, high_b = np.uint64(b & _MASK), np.uint64(b >> 32)
    low_a, high_a = a & _LOW, a >> _HALF
    low, middle, other = low_a * low_b, high_a * low_b, low_a * high_b
    carry = (low >> _HALF) + (middle & _LOW) + other
    return high_a * high_b + (middle >> _HALF) + (carry >> _HALF), a * np.uint64(b)


def _add(a: tuple[Words, Words], b: tuple[Words, Words]) -> tuple[Words, Words]:
    """Return the sum of two 128-bit numbers, each as (high, low)."""
    low = a[1] + b[1]
    return a[0] + b[0] + (low < a[1]), low


def _advance(state: tuple[Words, Words], increment: tuple[Words, Words]) -> tuple[Words, Words]:
    """Return the next state of PCG64: state · multiplier + increment, modulo 2¹²⁸."""
    high, low = _multiply(state[1], _MULTIPLIER[1])
    high += state[0] * np.uint64(_MULTIPLIER[1]) + state[1] * np.uint64(_MULTIPLIER[0])
    return _add((high, low), increment)


def _seed_words(seeds: NDArray[np.int64]) -> tuple[Words, Words, Words, Words]:
    """Return what `np.random.SeedSequence(seed).generate_state(4, np.uint64)` returns per seed."""
    if len(seeds) < FEW:
        rows = [
            np.random.SeedSequence(seed).generate_state(4, np.uint64) for seed in seeds.tolist()
        ]
        first, second, third, fourth = np.array(rows, np.uint64).reshape(-1, 4).T
        return first, second, third, fourth
    wide = seeds.astype(np.uint64)
    zero = np.zeros(len(wide), np.uint32)
    entropy = [wide.astype(np.uint32), (wide >> _HALF).astype(np.uint32), zero, zero]
    constant = 0x43B0D7E5

    def hashed(value: NDArray[np.uint32], factor: int) -> NDArray[np.uint32]:
        nonlocal constant
        value = value ^ np.uint32(constant)
        constant = constant * factor & _MASK
        value = value * np.uint32(constant)
        return value ^ (value >> np.uint32(16))

    pool = [hashed(word, 0x931E8875) for word in entropy]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                mixed = pool[target] * np.uint32(0xCA01F9DD)
                mixed = mixed - hashed(pool[source], 0x931E8875) * np.uint32(0x4973F715)
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    constant = 0x8B51F9DD
    halves = [hashed(pool[word % _POOL], 0x58F38DED).astype(np.uint64) for word in range(8)]
    first, second, third, fourth = (
        halves[word] | (halves[word + 1] << _HALF) for word in range(0, 8, 2)
    )
    return first, second, third, fourth


def first_uniform(
    seeds: NDArray[np.int64], size: int, low: float, high: float
) -> NDArray[np.float64]:
    """Return `np.random.default_rng(seed).uniform(low, high, size)` for each seed, in rows."""
    if len(seeds) < FEW:
        rows = [np.random.default_rng(seed).uniform(low, high, size) for seed in seeds.tolist()]
        return np.array(rows).reshape(-1, size)
    streams, ids = Streams(len(seeds)), np.arange(len(seeds))
    streams.seed(ids, seeds)
    return streams.uniform(ids, size, low, high)
