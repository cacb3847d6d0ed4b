import numpy as np

from trellis import rng


def test_uniform_numbers_depend_only_on_their_own_seed():
    many = rng.uniform(np.arange(100), 12, -1, 1)
    np.testing.assert_array_equal(rng.uniform(np.array([42]), 12, -1, 1)[0], many[42])
    np.testing.assert_array_equal(rng.uniform(np.arange(100), 5, -1, 1), many[:, :5])
    assert len(np.unique(many)) == many.size


def test_numbers_are_uniform_and_neighbours_uncorrelated():
    samples = rng.uniform(np.arange(50_000), 6, 0, 1)
    assert samples.min() >= 0
    assert samples.max() < 1
    counts = np.histogram(samples, 100, (0, 1))[0]
    # χ² with 99 degrees of freedom: mean 99, deviation 14.
    assert np.square(counts - samples.size / 100).sum() / (samples.size / 100) < 99 + 5 * 14
    along = np.corrcoef(samples.T) - np.eye(6)
    across = np.corrcoef(samples[:-1].ravel(), samples[1:].ravel())[0, 1]
    assert max(np.abs(along).max(), abs(across)) < 5 / np.sqrt(len(samples))


def test_split_mix_is_the_published_generator():
    """The expected numbers are the first outputs of its reference implementation for state 0."""
    states = np.arange(1, 4, dtype=np.uint64) * rng.GOLDEN
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert rng.split_mix(states).tolist() == expected
