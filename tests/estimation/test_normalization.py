import numpy as np

from trellis.estimation.normalization import Standardizer, no_moments


def test_moments_of_batches_are_those_of_all_data():
    rng = np.random.default_rng(0)
    data = rng.normal(loc=1e4, scale=[1.0, 5.0], size=(1000, 2))
    moments = no_moments((2,))
    for part in np.split(data, [10, 11, 500]):
        moments = moments.update(part)
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(0), rtol=1e-9)
    assert moments.count == 1000


def test_standardized_data_has_mean_zero_and_variance_one_within_limits():
    rng = np.random.default_rng(1)
    data = rng.normal(loc=3.0, scale=2.0, size=(5000, 3)).astype(np.float32)
    standardize = Standardizer(no_moments((3,)).update(data))
    out = standardize(data)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(out.std(0), 1, atol=1e-3)
    assert standardize(np.full((1, 3), 1e6, np.float32)).max() == 10.0


def test_without_data_nothing_changes():
    x = np.array([[1.0, -2.0]], np.float32)
    np.testing.assert_allclose(Standardizer(no_moments((2,)))(x), x)
