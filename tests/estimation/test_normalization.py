"""The KL that moving observation statistics add, against the formula for a linear Gaussian."""

import numpy as np
import pytest

from tests.estimation.test_baseline import samples_of
from trellis.estimation.normalization import normalization_kl
from trellis.moments import Moments
from trellis.policies.distributions import DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.normalizer import make_normalizer
from trellis.policies.policy import Policy


def test_the_kl_of_a_linear_gaussian_is_known():
    """KL = ½(w·Δx)² for standard deviation 1, with Δx the change of the normalized observation."""
    rng = np.random.default_rng(0)
    raw = rng.normal(3.0, 2.0, size=(40, 5, 2))
    old, new = Moments.of(raw[:10], (2,)), Moments.of(raw, (2,))
    policy = Policy(MLP(2, (), 1), DiagGaussian(1))
    theta = np.array([0.7, -0.4, 0.1, 0.0], np.float32)  # Two weights, a bias, a log std.
    age = np.tile(np.arange(40)[:, None], 5)
    samples = samples_of(np.ones((40, 5), np.float32), age, age == 39)
    before, after = make_normalizer(old)(raw), make_normalizer(new)(raw)
    samples = samples._replace(observation=before, raw_observation=raw)
    found = normalization_kl(policy, theta, samples, new)
    change = (after - before) @ theta[:2]
    assert found.mean == pytest.approx(0.5 * np.mean(change**2), rel=1e-4)
    assert found.count == 200
    same = normalization_kl(policy, theta, samples, old)
    assert same.mean == pytest.approx(0, abs=1e-9)
