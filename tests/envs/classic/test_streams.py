"""Compares `Streams` with NumPy's own generators, number by number."""

import numpy as np

from trellis.envs.classic.streams import Streams

SEEDS = np.concatenate([np.arange(50), [2**31 - 1, 2**32 - 1, 2**32, 2**62 + 12345, 2**63 - 1]])


def test_numbers_are_those_of_numpy():
    ids = np.arange(len(SEEDS))
    streams, theirs = Streams(len(SEEDS)), [np.random.default_rng(int(s)) for s in SEEDS]
    for some in (ids[:3], ids[3:]):  # Few seeds and many are computed differently.
        streams.seed(some, SEEDS[some])
    order = np.random.default_rng(0)
    for _ in range(60):
        some = np.flatnonzero(order.random(len(ids)) < 0.7)
        match int(order.integers(4)):
            case 0:
                expected = [theirs[i].random() for i in some]
                assert streams.random(some).tolist() == expected
            case 1:
                expected = [theirs[i].uniform(-0.1, 0.1, 3).tolist() for i in some]
                assert streams.uniform(some, 3, -0.1, 0.1).tolist() == expected
            case 2:
                expected = [theirs[i].choice([1, 2, 3, 4]) - 1 for i in some]
                assert streams.integers(some, 4).tolist() == expected
            case _:
                # So many that biased numbers are frequent and are replaced.
                count = int(order.choice([13, 3, 2**31 + 2**30]))
                expected = [int(theirs[i].integers(count)) for i in some]
                assert streams.integers(some, count).tolist() == expected


def test_a_copied_state_continues_the_same():
    streams = Streams(4)
    streams.seed(np.arange(4), np.arange(4))
    streams.integers(np.array([0, 2]), 5)
    words = streams.words.copy()
    first = [streams.integers(np.arange(4), 5), streams.random(np.arange(4))]
    streams.words[:] = words
    again = [streams.integers(np.arange(4), 5), streams.random(np.arange(4))]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
