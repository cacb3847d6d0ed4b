"""Tests of the paper's network for images against XLA's convolution and a dense Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trellis.estimation.state_batch import StateBatch, cut
from trellis.optimization.fisher import fisher_operator
from trellis.optimization.rules import Curvature
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals
from trellis.policies.policy import Policy

PAPER = Policy(ConvNet((4, 52, 40), (16, 16), (20,), 8), Categoricals((3, 3, 2)))


def pictures(n, shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def test_the_papers_policy_has_33500_parameters():
    assert PAPER.num_params == 33_500
    assert PAPER.init(np.random.default_rng(0)).shape == (33_500,)
    assert Policy(ConvNet((4, 84, 84), (16, 16), (20,), 18), Categoricals((18,))).num_params == (
        121_070
    )


@pytest.mark.parametrize("shape", [(4, 52, 40), (3, 21, 27)], ids=["paper", "odd sides"])
def test_outputs_equal_xlas_convolution(shape):
    network = ConvNet(shape, (16, 8), (20,), 5, output_scale=1.0)
    rng = np.random.default_rng(0)
    weights = [w.astype(np.float32) for w in network.init(rng)]
    weights = [w + 0.1 * rng.standard_normal(w.shape).astype(np.float32) for w in weights]
    x = pictures(3, shape)
    y = jnp.moveaxis(x, 1, -1).astype(jnp.float32) / 255
    for kernel, bias in (weights[0:2], weights[2:4]):
        layout = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            y, jnp.asarray(kernel), (2, 2), "VALID", dimension_numbers=layout
        )
        y = jax.nn.relu(y + bias)
    y = jnp.tanh(y.reshape(3, -1) @ weights[4] + weights[5]) @ weights[6] + weights[7]
    ours = network.apply(weights, x)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, y, rtol=1e-4, atol=1e-5)
    compiled = jax.jit(network.apply)(weights, x)
    np.testing.assert_allclose(compiled, y, rtol=1e-4, atol=1e-5)


def test_signed_bytes_are_levels_of_a_standardized_picture():
    network = ConvNet((4, 52, 40), (16, 16), (20,), 8)
    weights = [w.astype(np.float32) for w in network.init(np.random.default_rng(0))]
    bytes_ = pictures(3, (4, 52, 40)) // 2
    # 16 levels are one standard deviation; in unsigned bytes 255 levels are 1.
    larger = [weights[0] * (255.0 / 16.0), *weights[1:]]
    for apply in (network.apply, jax.jit(network.apply)):
        np.testing.assert_allclose(
            apply(weights, bytes_.astype(np.int8)), apply(larger, bytes_), rtol=1e-4, atol=1e-6
        )


def test_a_pictures_outputs_do_not_depend_on_its_neighbours():
    weights, _ = PAPER.unflatten(PAPER.init(np.random.default_rng(0)))
    x = pictures(6, (4, 52, 40))
    together = PAPER.network.apply(weights, np.stack([x, x[::-1]]))
    assert np.array_equal(together[0], PAPER.network.apply(weights, x))
    again = PAPER.network.apply(weights, np.stack([np.concatenate([x[:3], x[:3]])] * 2))
    assert np.array_equal(again[0], again[1])


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_fisher_products_are_those_of_the_dense_hessian():
    policy = Policy(ConvNet((2, 10, 9), (3,), (4,), 5), Categoricals((3, 2)))
    rng = np.random.default_rng(0)
    theta = 0.5 * rng.standard_normal(policy.num_params)
    old = jnp.asarray(theta)
    n, x = 7, pictures(7, (2, 10, 9))
    zeros, ones = np.zeros((n, 1)), np.ones(n)
    batch = StateBatch(x, np.zeros((n, 1, 2), int), zeros, zeros, ones, ones)

    def total_kl(new):
        params = [policy.distribution_params(t, jnp.asarray(x))[0] for t in (old, new)]
        return jnp.sum(policy.distribution.kl(old=params[0], new=params[1]))

    hessian = jax.jit(jax.hessian(total_kl))(theta)
    chunks = cut(batch, 4, 2, np.float64)

    @jax.jit
    def product(v):
        return fisher_operator(policy, Curvature.ANALYTIC, theta, chunks, residual_budget=0)(v)

    v = rng.standard_normal(policy.num_params)
    expected = hessian @ v
    assert np.linalg.norm(product(v) - expected) < 1e-9 * np.linalg.norm(expected)


def test_pictures_that_are_too_small_are_an_error():
    with pytest.raises(ValueError, match="pictures of 8×8 are too small"):
        ConvNet((4, 8, 8), (16, 16), (20,), 8)
    with pytest.raises(ValueError, match="at least one convolution"):
        ConvNet((4, 12, 12), (), (20,), 8)
