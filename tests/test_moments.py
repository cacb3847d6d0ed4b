"""Tests that merged moments of parts equal the moments of the whole."""

import numpy as np

from trellis import moments as moments_module
from trellis.moments import Moments


def test_merged_moments_equal_those_of_all_data():
    rng = np.random.default_rng(0)
    data = rng.normal(loc=1e4, scale=[1.0, 5.0], size=(1000, 2))
    moments = Moments.zeros((2,))
    for part in np.split(data, [10, 11, 500]):
        moments = moments.merge(Moments.of(part, (2,)))
    np.testing.assert_allclose(moments.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(0), rtol=1e-9)
    assert moments.count == 1000


def test_moments_of_many_rows_are_merged_from_parts(monkeypatch):
    data = np.random.default_rng(2).integers(0, 256, size=(100, 4, 3), dtype=np.uint8)
    whole = Moments.of(data, (4, 3))
    monkeypatch.setattr(moments_module, "CHUNK_BYTES", 8 * 12 * 7)  # seven rows per chunk
    parts = Moments.of(data, (4, 3))
    assert parts.count == whole.count == 100
    np.testing.assert_allclose(parts.mean, data.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(parts.variance, data.var(axis=0), rtol=1e-12)
    np.testing.assert_allclose(whole.variance, data.var(axis=0), rtol=1e-12)


def test_moments_survive_a_round_trip_through_arrays():
    moments = Moments.of(np.random.default_rng(3).normal(size=(10, 2)), (2,))
    arrays = moments.to_arrays("observations")
    again = Moments.from_arrays("observations", arrays)
    for name in ("count", "mean", "squares"):
        assert getattr(again, name).tobytes() == getattr(moments, name).tobytes()


def test_a_mean_computed_elsewhere_keeps_its_variance_exactly():
    """A float32 number times a count is exact in float64, and so is the division."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        variance, count = float(rng.random(dtype=np.float32)), int(rng.integers(2, 10**6))
        assert Moments.of_mean(1.0, count, variance).variance == variance
