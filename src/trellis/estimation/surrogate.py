"""Computes the surrogate objective L(θ) and the KL divergence of the constraint (Eq. 14, Sec. 5).

The data is a `StateBatch`: states, the actions tried in each, their probabilities under the
sampling distribution q, and their values. Each state n contributes

    L_n(θ) = Σ_k w_k(θ)·value_k [+ b·H(π_θ(·|s_n))]        KL_n(θ) = KL(π_old(·|s_n) ‖ π_θ(·|s_n))

with weights w_k that the `Estimator` defines, and optionally a bonus b for the entropy H. L and the
mean KL are weighted means over states. All results are sums over chunks of states, together with
their total weights, so sums of shards on other machines can be added.

The old distribution is computed here from θ_old, by the same code as the new one. The
probabilities that the sampler stored are used as q only, so KL(θ_old ‖ θ_old) is exactly 0.
"""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from trellis.arrays import Array
from trellis.estimation.state_batch import Chunks, StateBatch, chunk_at, reduce_chunks, zeros_of
from trellis.policies.policy import Policy


class Estimator(enum.Enum):
    """Ways to weight the actions of a state."""

    IMPORTANCE = "importance"
    """w_k = π_θ/q / K: unbiased for any q that covers π (Eq. 14; K = 1 for single path)."""
    SELF_NORMALIZED = "self-normalized"
    """w_k = π_θ/q, divided by its sum over k: needs no baseline (Eq. 16, where q = π_old)."""
    ENUMERATED = "enumerated"
    """w_k = π_θ: every action was tried once (Eq. 15)."""


class GradientSums(NamedTuple):
    """L and its gradient at θ_old, as sums over states with their total weights."""

    surrogate: Float[Array, ""]
    """Weighted sum Σ weight·L_n."""
    gradient: Float[Array, " params"]
    """Gradient of Σ weight·L_n."""
    surrogate_weight: Float[Array, ""]
    """Total weight of the states in L."""
    kl_weight: Float[Array, ""]
    """Total weight of the states in the mean KL."""


class EvaluationSums(NamedTuple):
    """Comparison of θ with θ_old, as sums and a maximum over states."""

    gain: Float[Array, ""]
    """Weighted sum Σ weight·(L_n(θ) − L_n(θ_old))."""
    kl: Float[Array, ""]
    """Weighted sum Σ weight·KL_n(θ)."""
    max_kl: Float[Array, ""]
    """Largest KL_n(θ) of any state."""

    def merge(self, other: "EvaluationSums") -> "EvaluationSums":
        """Return the sums and the maximum over the states of both."""
        largest = jnp.maximum(self.max_kl, other.max_kl)
        return EvaluationSums(self.gain + other.gain, self.kl + other.kl, largest)


def gradient_and_outputs(
    policy: Policy,
    estimator: Estimator,
    theta: Array,
    chunks: Chunks,
    entropy_bonus: float = 0.0,
) -> tuple[GradientSums, Array]:
    """Return L and ∇L at θ_old as sums, and the network's outputs (capacity, chunk size, …).

    The outputs are a by-product of the gradient, a few numbers per state. They save half of the
    work of each evaluation in the line search.

    Args:
        policy: The policy.
        estimator: How actions are weighted.
        theta: θ_old.
        chunks: The states.
        entropy_bonus: Coefficient of the entropy in L.
    """

    def chunk_sums(batch: StateBatch) -> tuple[GradientSums, Array]:
        batch = chunks.gather(batch)

        def surrogate(theta: Array) -> tuple[Array, Array]:
            outputs = policy.outputs(theta, batch.observation)
            params = policy.params_of(theta, outputs)
            return surrogate_sum(policy, estimator, params, batch, entropy_bonus), outputs

        (value, outputs), gradient = jax.value_and_grad(surrogate, has_aux=True)(theta)
        weights = jnp.sum(batch.surrogate_weight), jnp.sum(batch.kl_weight)
        return GradientSums(value, gradient, *weights), outputs

    def body(index: Array, carry: tuple[GradientSums, Array]) -> tuple[GradientSums, Array]:
        sums, kept = carry
        more, outputs = chunk_sums(chunk_at(chunks.batch, index))
        sums = jax.tree.map(jnp.add, sums, more)
        return sums, jax.lax.dynamic_update_index_in_dim(kept, outputs, index, 0)

    sums, outputs = zeros_of(chunk_sums, chunks.batch)
    kept = jnp.zeros((len(chunks.batch.kl_weight), *outputs.shape), outputs.dtype)
    return jax.lax.fori_loop(0, chunks.count, body, (sums, kept))


def sum_evaluation(
    policy: Policy,
    estimator: Estimator,
    old: Array,
    new: Array,
    chunks: Chunks,
    old_outputs: Array,
    entropy_bonus: float = 0.0,
) -> EvaluationSums:
    """Compare θ = `new` with θ_old = `old`: return gain and KL, as sums and a maximum.

    The gain is a sum of differences, one per state. With large values and small steps, a difference
    of two sums would consist of rounding errors.

    Args:
        policy: The policy.
        estimator: How actions are weighted.
        old: θ_old.
        new: θ.
        chunks: The states.
        old_outputs: Network outputs at θ_old, from `gradient_and_outputs`.
        entropy_bonus: Coefficient of the entropy in L.
    """

    def chunk_sums(data: tuple[StateBatch, Array]) -> EvaluationSums:
        batch, outputs = chunks.gather(data[0]), data[1]
        old_params = policy.params_of(old, outputs)
        new_params = policy.params_of(new, policy.outputs(new, batch.observation))
        return compare(policy, estimator, old_params, new_params, batch, entropy_bonus)

    data = chunks.batch, old_outputs
    return reduce_chunks(chunk_sums, EvaluationSums.merge, data, chunks.count)


def max_quadratic_kl(policy: Policy, theta: Array, direction: Array, chunks: Chunks) -> Array:
    """Return the largest quadratic KL of any state along a direction d, ½(Jd)ᵀM(Jd)."""

    def chunk_max(batch: StateBatch) -> Array:
        batch = chunks.gather(batch)
        params, tangent = jax.jvp(
            lambda theta: policy.distribution_params(theta, batch.observation)[0],
            (theta,),
            (direction,),
        )
        return quadratic_kl(policy, params, tangent, batch)

    return reduce_chunks(chunk_max, jnp.maximum, chunks.batch, chunks.count)


def surrogate_sum(
    policy: Policy, estimator: Estimator, params: Any, batch: StateBatch, bonus: float
) -> Array:
    """Return Σ weight·L_n of some states from their distribution parameters μ."""
    log_prob = _log_prob(policy, params, batch)
    values = surrogate_values(estimator, log_prob, batch.log_q, batch.value)
    if bonus:
        values = values + bonus * policy.distribution.entropy(params)
    return _weighted_sum(batch.surrogate_weight, values)


def compare(
    policy: Policy, estimator: Estimator, old: Any, new: Any, batch: StateBatch, bonus: float
) -> EvaluationSums:
    """Return gain and KL of some states from their old and new distribution parameters μ."""
    old_log_prob, new_log_prob = (_log_prob(policy, params, batch) for params in (old, new))
    gain = surrogate_gains(estimator, old_log_prob, new_log_prob, batch.log_q, batch.value)
    if bonus:
        entropy = policy.distribution.entropy
        gain = gain + bonus * (entropy(new) - entropy(old))
    kl = policy.distribution.kl(old=old, new=new)
    return EvaluationSums(
        _weighted_sum(batch.surrogate_weight, gain),
        _weighted_sum(batch.kl_weight, kl),
        jnp.max(jnp.where(batch.kl_weight > 0, kl, 0.0)),
    )


def quadratic_kl(policy: Policy, params: Any, tangent: Any, batch: StateBatch) -> Array:
    """Return the largest ½tᵀMt of some states, for a tangent t of their parameters μ."""
    image = policy.distribution.fisher_product(params, tangent)
    terms = jax.tree.map(lambda t, m: jnp.sum(t * m, axis=-1), tangent, image)
    quadratic = 0.5 * sum(jax.tree.leaves(terms))
    return jnp.max(jnp.where(batch.kl_weight > 0, quadratic, 0.0))


def surrogate_values(estimator: Estimator, log_prob: Array, log_q: Array, value: Array) -> Array:
    """Return L_n(θ) of each state, (n,), from arrays (n, K)."""
    baseline = _baseline(estimator, value)
    weights = jnp.exp(_log_weights(estimator, log_prob, log_q))
    centered = jnp.sum(weights * (value - baseline), axis=-1)
    return centered + baseline[..., 0]


def surrogate_gains(
    estimator: Estimator, old_log_prob: Array, new_log_prob: Array, log_q: Array, value: Array
) -> Array:
    """Return L_n(θ) − L_n(θ_old) of each state, (n,), without cancellation errors."""
    old = _log_weights(estimator, old_log_prob, log_q)
    new = _log_weights(estimator, new_log_prob, log_q)
    change = jnp.exp(old) * jnp.expm1(new - old)
    return jnp.sum(change * (value - _baseline(estimator, value)), axis=-1)


def _log_prob(policy: Policy, params: Any, batch: StateBatch) -> Array:
    """Return log π(a|s) of every action of every state, (n, K).

    For states of weight 0 it is log q, so that no product is 0·∞.
    """
    of_actions = jax.vmap(policy.distribution.log_prob, in_axes=(None, 1), out_axes=1)
    log_prob = of_actions(params, batch.action)
    return jnp.where(batch.surrogate_weight[:, None] > 0, log_prob, batch.log_q)


def _log_weights(estimator: Estimator, log_prob: Array, log_q: Array) -> Array:
    match estimator:
        case Estimator.IMPORTANCE:
            return log_prob - log_q - np.log(log_q.shape[-1])
        case Estimator.SELF_NORMALIZED:
            return jax.nn.log_softmax(log_prob - log_q, axis=-1)
        case Estimator.ENUMERATED:
            return log_prob


def _baseline(estimator: Estimator, value: Array) -> Array:
    """Return a constant per state that is subtracted from its values to keep their digits.

    Where the weights sum to 1 it does not change the result. The mean of equal values is exactly
    their value, so equal values give a gradient of exactly 0.
    """
    first = value[..., :1]
    if estimator is Estimator.IMPORTANCE:
        return jnp.zeros_like(first)
    return first + jnp.mean(value - first, axis=-1, keepdims=True)


def _weighted_sum(weight: Array, values: Array) -> Array:
    return jnp.sum(jnp.where(weight > 0, weight * values, 0.0))
