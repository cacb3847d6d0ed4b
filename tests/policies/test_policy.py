import jax.numpy as jnp
import numpy as np
import pytest

from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP, orthogonal
from trellis.policies.policy import Policy


def test_the_papers_swimmer_has_364_parameters_without_hidden_biases():
    policy = Policy(MLP(10, (30,), 2, hidden_biases=False), DiagGaussian(2))
    assert policy.num_params == 10 * 30 + 30 * 2 + 2 + 2 == 364
    assert policy.init(np.random.default_rng(0)).shape == (364,)


def test_the_papers_cart_pole_has_six_parameters():
    assert Policy(MLP(4, (), 1), DiagGaussian(1)).num_params == 6


def test_theta_is_the_weights_in_order_and_then_the_free_parameters():
    policy = Policy(MLP(3, (4,), 2), DiagGaussian(2), initial_log_std=-0.5)
    theta = policy.init(np.random.default_rng(0))
    assert theta.dtype == np.float32
    weights, free = policy.unflatten(theta)
    assert [w.shape for w in weights] == [(3, 4), (4,), (4, 2), (2,)]
    np.testing.assert_array_equal(np.concatenate([w.ravel() for w in weights] + [free]), theta)
    np.testing.assert_array_equal(free, np.float32([-0.5, -0.5]))


def test_the_network_equals_dense_layers_with_tanh():
    policy = Policy(MLP(3, (4,), 2), DiagGaussian(2))
    rng = np.random.default_rng(1)
    theta = rng.normal(size=policy.num_params).astype(np.float32)
    (W1, b1, W2, b2), log_std = policy.unflatten(theta)
    x = rng.normal(size=(5, 3)).astype(np.float32)
    params, carry = policy.distribution_params(theta, x)
    np.testing.assert_allclose(params.mean, np.tanh(x @ W1 + b1) @ W2 + b2, rtol=1e-6)
    np.testing.assert_array_equal(params.log_std, log_std)
    assert carry == ()


def test_numpy_and_jax_inference_agree():
    policy = Policy(MLP(11, (64, 64), 6), Categoricals((3, 3)))
    rng = np.random.default_rng(2)
    theta, x = policy.init(rng), rng.normal(size=(9, 11)).astype(np.float32)
    on_numpy, _ = policy.distribution_params(theta, x)
    on_jax, _ = policy.distribution_params(jnp.asarray(theta), jnp.asarray(x))
    assert isinstance(on_numpy, np.ndarray)
    np.testing.assert_allclose(on_numpy, on_jax, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 5), (4, 4)])
def test_orthogonal_matrices_are_orthogonal(rows, columns):
    q = orthogonal(np.random.default_rng(0), rows, columns)
    assert q.shape == (rows, columns)
    gram = q.T @ q if rows >= columns else q @ q.T
    np.testing.assert_allclose(gram, np.eye(min(rows, columns)), atol=1e-12)


def test_the_last_layer_starts_small():
    *_, last, bias = MLP(4, (8,), 2).init(np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(last, axis=0), 0.01)
    assert not bias.any()


def test_a_network_that_does_not_fit_the_distribution_is_an_error():
    with pytest.raises(ValueError, match="3 outputs, but the distribution needs 2"):
        Policy(MLP(4, (8,), 3), DiagGaussian(2))


def test_a_theta_of_wrong_shape_is_an_error():
    policy = Policy(MLP(4, (), 1), DiagGaussian(1))
    with pytest.raises(ValueError, match=r"must have shape \(6,\)"):
        policy.distribution_params(np.zeros(7), np.zeros((2, 4)))


def test_layers_without_units_are_an_error():
    with pytest.raises(ValueError, match="at least one unit"):
        MLP(4, (0,), 2)
