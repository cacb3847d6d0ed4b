"""Tests of the compiled network for several inputs against JAX's derivatives of the same one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("numba")
from trellis.inputs import Inputs
from trellis.policies.compiled_network import as_frames, compiled_network, is_compilable
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP, num_weights, unflatten
from trellis.policies.several import SeveralNetwork, VectorEncoder

CAMERA = ConvNet((2, 10, 9), (3,), (4,), 5)
DEPTH = ConvNet((1, 12, 11), (4,), (), 3)
ROWS = VectorEncoder(1, 4, MLP(3, (), 6)), VectorEncoder(4, 5, MLP(1, (2,), 2))
SEEING = SeveralNetwork((CAMERA, DEPTH), ROWS, MLP(16, (7,), 2))
LINEAR = SeveralNetwork((DEPTH,), (), MLP(3, (), 4))
N = 6


def inputs(network):
    rng = np.random.default_rng(1)
    pictures = tuple(
        rng.integers(0, 256, (N, *each.inputs), dtype=np.uint8) for each in network.pictures
    )
    return Inputs(pictures, rng.standard_normal((N, 6)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("network", [SEEING, LINEAR], ids=["two cameras", "linear"])
def test_outputs_and_derivatives_equal_jaxs(network):
    def check(ours, theirs):
        assert np.abs(ours - theirs).max() < 1e-12 * np.abs(theirs).max()

    rng, observation = np.random.default_rng(0), inputs(network)
    theta, v = 0.5 * rng.standard_normal((2, num_weights(network)))
    u = rng.standard_normal((N, network.num_outputs))
    net = compiled_network(network)
    x = net.load(*as_frames(observation), np.float64)
    weights = net.weights(theta)
    outputs, kept = net.forward(weights, x)

    def outputs_of(theta):
        return network.apply(
            unflatten(network, theta)[0],
            Inputs(tuple(map(jnp.asarray, observation.pictures)), jnp.asarray(observation.rows)),
        )

    theirs, pull = jax.vjp(outputs_of, theta)
    check(outputs, theirs)
    _, tangent = jax.jvp(outputs_of, (theta,), (v,))
    check(net.tangent(weights, net.weights(v), x, kept), tangent)
    check(net.gradient(weights, x, kept, u.copy()), pull(u)[0])
    assert kept.nbytes > 0


class OwnEncoder(MLP):
    """An encoder of a user's own."""


def test_other_layers_are_left_to_xla():
    assert is_compilable(SEEING)
    assert is_compilable(LINEAR)
    assert not is_compilable(MLP(3, (), 2))
    without_pictures = SeveralNetwork((), (VectorEncoder(0, 3, MLP(3, (), 4)),), MLP(4, (), 2))
    assert not is_compilable(without_pictures)
    without_biases = MLP(3, (5,), 2, hidden_biases=False)
    assert not is_compilable(SeveralNetwork((DEPTH,), (), without_biases))
    rows = VectorEncoder(0, 2, OwnEncoder(2, (), 3))
    assert not is_compilable(SeveralNetwork((DEPTH,), (rows,), MLP(6, (), 2)))
