import numpy as np

from trellis.envs import seeding


def test_numbers_depend_on_their_own_seed_alone():
    many = seeding.uniform(np.arange(100), 12, -1, 1)
    np.testing.assert_array_equal(seeding.uniform(np.array([42]), 12, -1, 1)[0], many[42])
    np.testing.assert_array_equal(seeding.uniform(np.arange(100), 5, -1, 1), many[:, :5])
    assert len(np.unique(many)) == many.size


def test_numbers_are_uniform_and_neighbours_unrelated():
    draws = seeding.uniform(np.arange(50_000), 6, 0, 1)
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, 100, (0, 1))[0]
    # χ² with 99 degrees of freedom: mean 99, deviation 14.
    assert np.square(counts - draws.size / 100).sum() / (draws.size / 100) < 99 + 5 * 14
    along = np.corrcoef(draws.T) - np.eye(6)
    across = np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]
    assert max(np.abs(along).max(), abs(across)) < 5 / np.sqrt(len(draws))
