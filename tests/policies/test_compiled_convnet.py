"""Tests of numba's convolutions against JAX's derivatives of the same network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("numba")
from trellis.policies.compiled_convnet import compiled
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import num_weights, unflatten

pytestmark = pytest.mark.usefixtures("x64")

NETWORKS = {
    "one layer": ConvNet((2, 10, 9), (3,), (4,), 5),
    "odd sides, two hidden layers": ConvNet((3, 21, 27), (16, 8), (20, 7), 4),
    "three layers, padded channels, linear": ConvNet((2, 31, 40), (20, 5, 33), (), 3),
}


class Case:
    """A network at a random point, with pictures, a direction and a cotangent."""

    def __init__(self, network: ConvNet, dtype: type[np.integer] = np.uint8):
        rng = np.random.default_rng(0)
        size, n = num_weights(network), 5
        self.theta, self.v = 0.3 * rng.standard_normal((2, size))
        self.u = rng.standard_normal((n, network.num_outputs))
        frames = rng.integers(0, 256, (9, *network.inputs[1:]), dtype=np.uint8)
        self.frames = frames.astype(dtype)
        self.index = rng.integers(0, 9, (n, network.inputs[0])).astype(np.int32)
        self.net = compiled(network)
        self.weights = self.net.weights(self.theta)
        self.x = self.net.load(self.frames, self.index, np.float64)
        self.outputs, self.kept = self.net.forward(self.weights, self.x)

    def outputs_of(self, theta):
        pictures = jnp.asarray(self.frames[self.index])
        return self.net.network.apply(unflatten(self.net.network, theta)[0], pictures)


@pytest.fixture(
    params=[pytest.param(n, marks=[pytest.mark.slow] * (n != "one layer")) for n in NETWORKS]
)
def case(request):
    return Case(NETWORKS[request.param])


def test_outputs_and_derivatives_equal_jaxs(case):
    def check(ours, theirs):
        assert np.abs(ours - theirs).max() < 1e-12 * np.abs(theirs).max()

    theirs, pull = jax.vjp(case.outputs_of, case.theta)
    check(case.outputs, theirs)
    _, tangent = jax.jvp(case.outputs_of, (case.theta,), (case.v,))
    direction = case.net.weights(case.v)
    check(case.net.tangent(case.weights, direction, case.x, case.kept), tangent)
    ours = case.net.gradient(case.weights, case.x, case.kept, case.u.copy())
    check(ours, pull(case.u)[0])


def test_signed_bytes_have_their_own_scale():
    case = Case(NETWORKS["one layer"], np.int8)
    np.testing.assert_allclose(case.outputs, case.outputs_of(case.theta), rtol=1e-12)


def test_black_pictures_under_zero_biases_have_the_same_gradient():
    """All units are exactly at the corner of the rectifier, where both take the derivative 0."""
    case = Case(NETWORKS["one layer"])
    case.frames[:] = 0
    theta = np.concatenate([w.ravel() for w in case.net.network.init(np.random.default_rng(0))])
    weights, x = case.net.weights(theta), np.zeros_like(case.x)
    _, kept = case.net.forward(weights, x)
    theirs = jax.vjp(case.outputs_of, theta)[1](case.u)[0]
    ours = case.net.gradient(weights, x, kept, case.u.copy())
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_values_that_are_not_numbers_stay_visible():
    case = Case(NETWORKS["one layer"])
    theta = case.theta.copy()
    theta[0] = np.nan
    outputs, _ = case.net.forward(case.net.weights(theta), case.x)
    assert np.isnan(outputs).all()
