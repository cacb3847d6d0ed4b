"""Tests of distributions against closed forms, integrals and enumerations."""

import itertools

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from trellis.policies.distributions import Categoricals, DiagGaussian, GaussianParams

CATEGORICALS = [(4,), (3, 3, 2), (2, 2, 2, 2), (2, 5, 5, 3)]
OTHERS = [
    pytest.param(Categoricals(sizes), marks=pytest.mark.slow)
    for sizes in CATEGORICALS
    if sizes != (3, 3, 2)
]


def gaussian(rng, size=3, batch=()):
    return GaussianParams(rng.normal(size=(*batch, size)), rng.normal(size=size) * 0.5)


def enumerate_actions(sizes):
    return np.array(list(itertools.product(*(range(size) for size in sizes))))


@pytest.mark.usefixtures("x64")
class TestDiagGaussian:
    def test_log_prob_is_scipys(self):
        rng = np.random.default_rng(0)
        params, action = gaussian(rng, batch=(5,)), rng.normal(size=(5, 3))
        expected = stats.norm.logpdf(action, params.mean, np.exp(params.log_std)).sum(-1)
        np.testing.assert_allclose(DiagGaussian(3).log_prob(params, action), expected, rtol=1e-12)

    def test_kl_is_the_integral(self):
        rng = np.random.default_rng(1)
        old, new = gaussian(rng, 1), gaussian(rng, 1)

        def integrand(x):
            p = stats.norm(old.mean[0], np.exp(old.log_std[0]))
            q = stats.norm(new.mean[0], np.exp(new.log_std[0]))
            return p.pdf(x) * (p.logpdf(x) - q.logpdf(x))

        expected, _ = integrate.quad(integrand, -20, 20, epsabs=1e-12)
        np.testing.assert_allclose(DiagGaussian(1).kl(old=old, new=new), expected, rtol=1e-9)

    def test_kl_points_from_old_to_new(self):
        narrow = GaussianParams(np.zeros(1), np.array([-1.0]))
        wide = GaussianParams(np.zeros(1), np.array([1.0]))
        into_wide = DiagGaussian(1).kl(old=narrow, new=wide)
        np.testing.assert_allclose(into_wide, 2 + 0.5 * np.exp(-4) - 0.5, rtol=1e-12)
        assert into_wide < DiagGaussian(1).kl(old=wide, new=narrow)

    def test_entropy_is_scipys(self):
        params = gaussian(np.random.default_rng(2), batch=(4,))
        expected = stats.norm.entropy(params.mean, np.exp(params.log_std)).sum(-1)
        np.testing.assert_allclose(DiagGaussian(3).entropy(params), expected, rtol=1e-12)

    def test_samples_have_mean_and_std(self):
        params = GaussianParams(np.array([1.0, -2.0]), np.array([0.0, 1.0]))
        noise = DiagGaussian(2).noise(np.random.default_rng(3), (200_000,))
        draws = DiagGaussian(2).sample(params, noise)
        std = np.exp(params.log_std)
        assert np.all(np.abs(draws.mean(0) - params.mean) < 4 * std / np.sqrt(len(draws)))
        np.testing.assert_allclose(draws.std(0), std, rtol=0.01)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("sizes", CATEGORICALS)
class TestCategoricals:
    def test_log_prob_sums_to_one_over_all_actions(self, sizes):
        d = Categoricals(sizes)
        logits = np.random.default_rng(0).normal(size=d.num_outputs) * 2
        log_prob = d.log_prob(logits, enumerate_actions(sizes))
        np.testing.assert_allclose(np.exp(log_prob).sum(), 1.0, rtol=1e-12)

    def test_kl_and_entropy_are_the_sums_over_actions(self, sizes):
        d, rng = Categoricals(sizes), np.random.default_rng(1)
        old, new = rng.normal(size=(2, d.num_outputs)) * 2
        actions = enumerate_actions(sizes)
        log_old, log_new = d.log_prob(old, actions), d.log_prob(new, actions)
        kl = np.sum(np.exp(log_old) * (log_old - log_new))
        np.testing.assert_allclose(d.kl(old=old, new=new), kl, rtol=1e-10)
        np.testing.assert_allclose(d.entropy(old), -np.sum(np.exp(log_old) * log_old), rtol=1e-10)

    def test_samples_follow_the_probabilities(self, sizes):
        d, rng = Categoricals(sizes), np.random.default_rng(2)
        logits = rng.normal(size=d.num_outputs)
        draws = d.sample(logits, d.noise(rng, (100_000,)))
        actions = enumerate_actions(sizes)
        seen = np.array([np.sum(np.all(draws == action, axis=-1)) for action in actions])
        expected = len(draws) * np.exp(d.log_prob(logits, actions))
        assert stats.chisquare(seen, expected).pvalue > 1e-3

    def test_mode_is_the_most_probable(self, sizes):
        d = Categoricals(sizes)
        logits = np.random.default_rng(3).normal(size=d.num_outputs)
        actions = enumerate_actions(sizes)
        np.testing.assert_array_equal(
            d.mode(logits), actions[np.argmax(d.log_prob(logits, actions))]
        )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d", [DiagGaussian(3), Categoricals((3, 3, 2)), *OTHERS], ids=str)
def test_fisher_product_is_the_hessian_of_the_kl(d):
    rng = np.random.default_rng(4)
    start = jax.tree.map(jnp.asarray, make_params(d, rng))
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    hessian = jax.jit(jax.hessian(lambda new: d.kl(old=start, new=unravel(new))))(flat)
    v = rng.normal(size=flat.size)
    product, _ = jax.flatten_util.ravel_pytree(d.fisher_product(start, unravel(v)))
    np.testing.assert_allclose(product, hessian @ v, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("d", [DiagGaussian(3), Categoricals((3, 3, 2))], ids=str)
def test_numpy_and_jax_agree(d):
    rng = np.random.default_rng(5)
    old, new, noise = make_params(d, rng), make_params(d, rng), d.noise(rng, ())
    action = d.sample(old, noise)
    on_jax = jax.tree.map(jnp.asarray, (old, new, noise, action))
    np.testing.assert_allclose(d.sample(on_jax[0], on_jax[2]), action, rtol=1e-12)
    np.testing.assert_allclose(
        d.log_prob(on_jax[0], on_jax[3]), d.log_prob(old, action), rtol=1e-12
    )
    np.testing.assert_allclose(
        d.kl(old=on_jax[0], new=on_jax[1]), d.kl(old=old, new=new), rtol=1e-12
    )


@pytest.mark.parametrize("log_std", [-14.0, -30.0, 0.0, 14.0, 30.0])
def test_gaussian_is_sound_at_extreme_stds_in_single_precision(log_std):
    d = DiagGaussian(2)
    params = GaussianParams(np.zeros(2, np.float32), np.full(2, log_std, np.float32))
    action = d.sample(params, np.array([1.0, -1.0], np.float32))
    expected = -1.0 - 2 * log_std - np.log(2 * np.pi)
    np.testing.assert_allclose(d.log_prob(params, action), expected, rtol=1e-4)
    assert d.kl(old=params, new=params) == 0.0
    wider = params._replace(log_std=params.log_std + np.float32(1e-3))
    np.testing.assert_allclose(d.kl(old=params, new=wider), 2 * 1e-6, rtol=2e-2)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e30])
def test_categoricals_are_sound_at_extreme_logits_in_single_precision(scale):
    d = Categoricals((3, 2))
    logits = np.array([1.0, 0.0, -1.0, 0.0, 1.0], np.float32) * np.float32(scale)
    assert d.kl(old=logits, new=logits) == 0.0
    assert d.log_prob(logits, np.array([0, 1])) == 0.0
    assert np.isfinite(d.log_prob(logits, np.array([2, 0])))
    assert 0.0 <= d.entropy(logits) < 1e-30
    flipped = d.kl(old=logits, new=-logits)
    np.testing.assert_allclose(flipped, 2 * scale + scale, rtol=1e-5)
    assert np.all(np.isfinite(d.fisher_product(logits, np.ones(5, np.float32))))


def test_kl_is_accurate_near_zero_in_single_precision():
    d = Categoricals((3,))
    old = np.array([0.3, -0.2, 0.1], np.float32)
    new = old + np.array([1e-4, -1e-4, 0], np.float32)
    exact = d.kl(old=old.astype(np.float64), new=new.astype(np.float64))
    np.testing.assert_allclose(d.kl(old=old, new=new), exact, rtol=1e-2)


def make_params(d, rng):
    return gaussian(rng) if isinstance(d, DiagGaussian) else rng.normal(size=d.num_outputs)


@pytest.mark.parametrize("sizes", [(), (0,), (3, -1)])
def test_impossible_sizes_are_an_error(sizes):
    with pytest.raises(ValueError, match="sizes must be"):
        Categoricals(sizes)
