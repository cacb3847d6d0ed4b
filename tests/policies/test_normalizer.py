import numpy as np

from trellis.moments import Moments
from trellis.policies.normalizer import PictureStandardizer, Standardizer, make_normalizer
from trellis.spaces import PictureFeatures, moments_shape


def test_standardized_data_has_mean_zero_and_variance_one_within_limits():
    rng = np.random.default_rng(1)
    data = rng.normal(loc=3.0, scale=2.0, size=(5000, 3)).astype(np.float32)
    standardize = Standardizer(Moments.of(data, (3,)))
    out = standardize(data)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(out.std(0), 1, atol=1e-3)
    assert standardize(np.full((1, 3), 1e6, np.float32)).max() == 10.0


def test_without_data_nothing_changes():
    x = np.array([[1.0, -2.0]], np.float32)
    np.testing.assert_allclose(Standardizer(Moments.zeros((2,)))(x), x)


def test_pictures_are_standardized_pixel_by_pixel():
    rng = np.random.default_rng(3)
    shape = moments_shape(PictureFeatures((4, 12, 10)))
    assert shape == (12, 10)
    still = np.full((200, *shape), 87, np.uint8)  # the background
    still[:, :6] = rng.integers(0, 256, size=(200, 6, 10), dtype=np.uint8)  # pixels that change
    moments = Moments.of(still, shape)
    standardize = make_normalizer(moments)
    assert isinstance(standardize, PictureStandardizer)
    stacks = np.stack([still[:4], still[4:8]])
    seen = standardize(stacks)
    assert seen.dtype == np.int8
    expected = 16 * (stacks - moments.mean) / np.sqrt(moments.variance + 16.0**2)
    assert np.abs(seen - expected).max() <= 0.5 + 1e-3
    assert not seen[..., 6:, :].any()
    # A new object in front of the background has a large value, limited to a byte.
    assert (standardize(np.full(shape, 119, np.uint8))[6:] == 32).all()
    assert (standardize(np.full(shape, 255, np.uint8))[6:] == 127).all()
    assert isinstance(make_normalizer(Moments.zeros((3,))), Standardizer)
