import numpy as np

from trellis.envs.spaces import PictureFeatures, moments_shape
from trellis.estimation import normalization
from trellis.estimation.normalization import (
    PictureStandardizer,
    Standardizer,
    moments_of,
    no_moments,
    standardizer,
)


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


def test_moments_of_many_rows_are_merged_from_parts(monkeypatch):
    data = np.random.default_rng(2).integers(0, 256, size=(100, 4, 3), dtype=np.uint8)
    whole = moments_of(data, (4, 3))
    monkeypatch.setattr(normalization, "MOMENTS_BYTES", 8 * 12 * 7)  # seven rows at once
    parts = moments_of(data, (4, 3))
    assert parts.count == whole.count == 100
    np.testing.assert_allclose(parts.mean, data.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(parts.variance, data.var(axis=0), rtol=1e-12)
    np.testing.assert_allclose(whole.variance, data.var(axis=0), rtol=1e-12)


def test_pictures_are_standardized_pixel_by_pixel():
    rng = np.random.default_rng(3)
    shape = moments_shape(PictureFeatures((4, 12, 10)))
    assert shape == (12, 10)
    still = np.full((200, *shape), 87, np.uint8)  # a background
    still[:, :6] = rng.integers(0, 256, size=(200, 6, 10), dtype=np.uint8)  # and what moves
    moments = no_moments(shape).update(still)
    standardize = standardizer(moments)
    assert isinstance(standardize, PictureStandardizer)
    stacks = np.stack([still[:4], still[4:8]])
    seen = standardize(stacks)
    assert seen.dtype == np.int8
    expected = 16 * (stacks - moments.mean) / np.sqrt(moments.variance + 16.0**2)
    assert np.abs(seen - expected).max() <= 0.5 + 1e-3
    assert not seen[..., 6:, :].any()
    # Something new before the background stands out, and is no more than a byte can say.
    assert (standardize(np.full(shape, 119, np.uint8))[6:] == 32).all()
    assert (standardize(np.full(shape, 255, np.uint8))[6:] == 127).all()
    assert isinstance(standardizer(no_moments((3,))), Standardizer)
