"""Computes Fisher-vector products v ↦ F v without forming the matrix F (App. C.1).

    F = mean over states of JᵀMJ

J = ∂μ/∂θ is the Jacobian of the distribution parameters μ, and M is the Fisher matrix of the
distribution in the coordinates μ. `jax.linearize` returns v ↦ Jv, and `jax.linear_transpose` of
that returns Jᵀ. So the code has the form of the equation and needs no second derivatives. The
analytic M integrates over actions. The empirical M is the outer product of the score ∇_μ log π(a|s)
of the sampled action, which makes JᵀMJ the uncentered second moment of ∇_θ log π (Sec. 6). No array
of size samples × parameters is stored.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis.arrays import Array
from trellis.estimation.state_batch import Chunks, StateBatch, reduce_chunks
from trellis.optimization.rules import Curvature
from trellis.policies.policy import Policy

MIN_SAMPLES = 1000
"""Smallest number of samples for F in all shards; fewer give a noisy metric."""
RESIDUAL_BUDGET_BYTES = 1 << 28
"""Largest size of the linearizations that are kept for all products of a step."""


def num_rows(states: int, fraction: float, shards: int = 1) -> int:
    """Return the number of states that F is computed on in each shard.

    Args:
        states: Number of states in a shard.
        fraction: Fraction of the states to use.
        shards: Number of shards, which together use at least `MIN_SAMPLES` states.
    """
    return max(math.ceil(fraction * states), math.ceil(MIN_SAMPLES / shards))


def choose_rows(
    weight: Array, fraction: float, rng: np.random.Generator, shards: int = 1, length: int = 1
) -> np.ndarray:
    """Return the indices of the states, or of the sequences, that F is computed on.

    They are a random subset of those with positive weight, in the order of the batch. A regular
    stride could be correlated with episodes or environments.

    Args:
        weight: Weight of each state; states of weight 0 are never chosen.
        fraction: Fraction of the states to use.
        rng: Source of the permutation.
        shards: Number of shards, which together use at least `MIN_SAMPLES` states.
        length: Number of states per sequence. A policy with memory needs whole sequences.
    """
    (candidates,) = np.nonzero((np.asarray(weight).reshape(-1, length) > 0).any(axis=1))
    wanted = -(-num_rows(len(candidates) * length, fraction, shards) // length)
    if wanted >= len(candidates):
        return candidates
    return np.sort(rng.permutation(candidates)[:wanted])


def fisher_operator(
    policy: Policy,
    curvature: Curvature,
    theta: Array,
    chunks: Chunks,
    *,
    residual_budget: int = RESIDUAL_BUDGET_BYTES,
) -> Callable[[Array], Array]:
    """Return the function v ↦ Σ weight·JᵀMJv over the states of `chunks`, at θ.

    The caller divides by the total weight, after adding the sums of other shards if there are any.

    Args:
        policy: The policy.
        curvature: Whether M is analytic or empirical.
        theta: θ, where the linearization is made.
        chunks: The states.
        residual_budget: Largest size in bytes of linearizations that are kept for all products.
    """

    def linearize(batch: StateBatch) -> tuple[Any, Any]:
        observation = chunks.gather(batch).observation
        return jax.linearize(lambda theta: policy.distribution_params(theta, observation)[0], theta)

    def chunk_product(batch: StateBatch, params: Any, jacobian: Any, v: Array) -> Array:
        image = weighted_metric_product(policy, curvature, params, batch, jacobian(v))
        (product,) = jax.linear_transpose(jacobian, v)(image)
        return product

    one_chunk = jax.tree.map(lambda leaf: leaf[0], chunks.batch)
    kept = jax.eval_shape(linearize, one_chunk)
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))
    keeps = num_bytes * len(chunks.batch.kl_weight) <= residual_budget
    linearized = jax.lax.map(linearize, chunks.batch) if keeps else None

    def product(v: Array) -> Array:
        def of_chunk(data: tuple[StateBatch, Any]) -> Array:
            batch, kept = data
            params, jacobian = kept or linearize(batch)
            return chunk_product(batch, params, jacobian, v)

        return reduce_chunks(of_chunk, jnp.add, (chunks.batch, linearized), chunks.count)

    return product


def weighted_metric_product(
    policy: Policy, curvature: Curvature, params: Any, batch: StateBatch, tangent: Any
) -> Any:
    """Return weight·M·t of every state; parts of μ that all states share get the sum."""
    weight = batch.kl_weight
    if curvature is Curvature.ANALYTIC:
        image = policy.distribution.fisher_product(params, tangent)
        return jax.tree.map(
            lambda leaf: leaf * (jnp.sum(weight) if leaf.ndim == 1 else weight[:, None]), image
        )

    def per_state(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (len(weight), leaf.shape[-1]))

    # With one row of μ per state, the gradient of the sum is the score of each state.
    score = jax.grad(
        lambda params: jnp.sum(policy.distribution.log_prob(params, batch.action[:, 0]))
    )(jax.tree.map(per_state, params))
    terms = jax.tree.map(lambda s, t: jnp.sum(s * t, axis=-1), score, tangent)
    along = (weight * sum(jax.tree.leaves(terms)))[:, None]
    return jax.tree.map(
        lambda s, leaf: jnp.sum(s * along, axis=0) if leaf.ndim == 1 else s * along,
        score,
        params,
    )
