"""Measures the trust-region step over its own gradient (App. C.1).

The paper says that on 10% of the data all Fisher-vector products together cost "about the same as
computing the gradient". Each figure is a ratio of medians, measured in turns in one run.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.figure import Figure
from trellis.config import StepConfig
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator, gradient_and_outputs
from trellis.optimization.fisher import choose_rows, fisher_operator
from trellis.optimization.rules import Curvature
from trellis.optimization.trust_region import TrustRegion, local_step
from trellis.policies.distributions import DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy

POLICY = Policy(MLP(11, (64, 64), 3), DiagGaussian(3))


def make_batch(n: int, seed: int = 0) -> tuple[np.ndarray, StateBatch]:
    """Return θ and samples of the policy, with advantages that depend on state and action."""
    rng = np.random.default_rng(seed)
    theta = POLICY.init(rng)
    observation = rng.normal(size=(n, 11)).astype(np.float32)
    params, _ = POLICY.distribution_params(theta, observation)
    action = POLICY.distribution.sample(params, POLICY.distribution.noise(rng, (n,)))
    value = np.tanh(action @ observation[:, :3].T[:, 0]) * observation[:, 0] + rng.normal(size=n)
    weight = np.ones(n, np.float32)
    log_q = POLICY.distribution.log_prob(params, action)
    batch = StateBatch(
        observation,
        action[:, None],
        log_q[:, None],
        value[:, None].astype(np.float32),
        weight,
        weight,
    )
    return theta, batch


def medians(functions: dict, repeats: int = 31) -> dict[str, float]:
    """Return the median seconds of each function, measured in turns so that noise affects all."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def prepared_step(n: int, **settings: Any):
    """Return the arguments of a step: θ, batch, chunks on the device, and settings."""
    theta, batch = make_batch(n)
    region = TrustRegion(POLICY, StepConfig(**settings), expected_states=n)
    rows = choose_rows(batch.kl_weight, region.config.fisher_fraction, np.random.default_rng(0))
    subset = jax.tree.map(lambda leaf: leaf[rows], batch)
    chunks, fisher_chunks = (
        jax.device_put(cut(part, size, -(-len(part.kl_weight) // size), np.float32))
        for part, size in (
            (batch, region._chunk_size),
            (subset, region._fisher_chunk_size),
        )
    )
    theta = jnp.asarray(theta)
    return theta, batch, chunks, fisher_chunks, region.config


def step_over_gradient(n: int = 50_000) -> list[Figure]:
    theta, batch, chunks, fisher_chunks, config = prepared_step(n)
    whole = jax.device_put(batch)

    @jax.jit
    def plain(theta, batch):
        def loss(theta):
            params, _ = POLICY.distribution_params(theta, batch.observation)
            log_prob = POLICY.distribution.log_prob(params, batch.action[:, 0])
            return jnp.mean(jnp.exp(log_prob - batch.log_q[:, 0]) * batch.value[:, 0])

        return jax.grad(loss)(theta)

    ours = jax.jit(lambda t, c: gradient_and_outputs(POLICY, Estimator.IMPORTANCE, t, c)[0])
    _, info = local_step(POLICY, config, Estimator.IMPORTANCE, theta, chunks, fisher_chunks)
    seconds = medians(
        {
            "step": lambda: local_step(
                POLICY, config, Estimator.IMPORTANCE, theta, chunks, fisher_chunks
            ),
            "plain": lambda: plain(theta, whole),
            "ours": lambda: ours(theta, chunks),
        }
    )
    tries = int(info.backtracks) + 1
    return [
        Figure(
            f"step over plain jax.grad, {n:,} samples, {tries} evaluation(s)",
            seconds["step"] / seconds["plain"],
            None,
            at_least=False,
        ),
        Figure(
            "step over our own gradient",
            seconds["step"] / seconds["ours"],
            2.0,
            at_least=False,
        ),
        Figure(
            "our gradient over plain jax.grad",
            seconds["ours"] / seconds["plain"],
            1.1,
            at_least=False,
        ),
    ]


def product_over_double_backprop(n: int = 5_000, products: int = 10) -> list[Figure]:
    """Compare ten products JᵀMJv, linearized once, with differentiating the KL twice."""
    theta, batch = make_batch(n)
    chunks = jax.device_put(cut(batch, n, 1, np.float32))
    theta = jnp.asarray(theta)

    def ten(product):
        return jax.lax.fori_loop(
            0, products, lambda _, v: product(v) + 0.1 * v, jnp.ones_like(theta)
        )

    @jax.jit
    def ours(theta, chunks):
        operator = fisher_operator(POLICY, Curvature.ANALYTIC, theta, chunks)
        return ten(lambda v: operator(v) / n)

    @jax.jit
    def double(theta, observation):
        def mean_kl(new):
            params = [POLICY.distribution_params(t, observation)[0] for t in (theta, new)]
            return jnp.mean(POLICY.distribution.kl(old=params[0], new=params[1]))

        return ten(lambda v: jax.grad(lambda t: jnp.vdot(jax.grad(mean_kl)(t), v))(theta))

    whole = jnp.asarray(batch.observation)
    np.testing.assert_allclose(ours(theta, chunks), double(theta, whole), rtol=1e-2, atol=1e-3)
    seconds = medians({"ours": lambda: ours(theta, chunks), "double": lambda: double(theta, whole)})
    ratio = seconds["ours"] / seconds["double"]
    return [Figure("JᵀMJ products over differentiating the KL twice", ratio, 0.7, at_least=False)]


def growth() -> list[Figure]:
    """Compare the seconds per sample at 500,000 samples with those at 5,000; 1 is linear.

    F uses all samples. A tenth of 5,000 would be less than the smallest number of samples for F, so
    the two sizes would use different fractions.
    """
    per_sample = {}
    for n in (5_000, 500_000):
        theta, _, chunks, fisher_chunks, config = prepared_step(n, fisher_fraction=1.0)
        run = {
            "step": lambda t=theta, c=chunks, f=fisher_chunks, k=config: local_step(
                POLICY, k, Estimator.IMPORTANCE, t, c, f
            )
        }
        _, info = run["step"]()
        per_sample[n] = medians(run, repeats=9)["step"] / n
        print(f"  {n:,} samples: {int(info.backtracks)} backtracks")
    ratio = per_sample[500_000] / per_sample[5_000]
    return [Figure("step per sample, 500,000 over 5,000 samples", ratio, 1.0, at_least=False)]


def run() -> list[Figure]:
    return step_over_gradient() + product_over_double_backprop() + growth()
