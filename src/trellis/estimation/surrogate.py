"""Computes the surrogate objective L(θ) and the KL divergence of the constraint (Eq. 14, Sec. 5).

The data is a `StateBatch`: states, the actions tried in each, their probabilities under the
sampling distribution q, and their values. Each state n contributes

    L_n(θ) = Σ_k w_k(θ)·value_k [+ b·H(π_θ(·|s_n))]        KL_n(θ) = KL(π_old(·|s_n) ‖ π_θ(·|s_n))

with weights w_k that the `Estimator` defines, and optionally a bonus b for the entropy H. L and the
mean KL are weighted means over states. All results are sums over chunks of states, together with
their total weights. So memory does not grow with the batch, and sums of shards on other machines
can be added. The actions of a state stay in one chunk, and so do the states of a sequence, if the
policy has memory.

The old distribution is computed here from θ_old, by the same code as the new one. The
probabilities that the sampler stored are used as q only, so KL(θ_old ‖ θ_old) is exactly 0.
"""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from trellis.arrays import Array
from trellis.policies.policy import Policy
from trellis.policies.sequences import replace_states, states_of
from trellis.sampling.frames import gather_frames, split_frames


class Estimator(enum.Enum):
    """Ways to weight the actions of a state."""

    IMPORTANCE = "importance"
    """w_k = π_θ/q / K: unbiased for any q that covers π (Eq. 14; K = 1 for single path)."""
    SELF_NORMALIZED = "self-normalized"
    """w_k = π_θ/q, divided by its sum over k: needs no baseline (Eq. 16, where q = π_old)."""
    ENUMERATED = "enumerated"
    """w_k = π_θ: every action was tried once (Eq. 15)."""


class StateBatch(NamedTuple):
    """Batch of n states with K actions each."""

    observation: Any
    """Observations: an array or a pytree of arrays whose first axis is the state. Those of a policy
    with memory are `Sequences`."""
    action: Shaped[Array, "state action ..."]
    """Actions that were tried."""
    log_q: Float[Array, "state action"]
    """log q(a|s) of each action under the sampling distribution."""
    value: Float[Array, "state action"]
    """Advantage or Q-value of each action."""
    surrogate_weight: Float[Array, " state"]
    """Weight of the state in L; 0 leaves it out."""
    kl_weight: Float[Array, " state"]
    """Weight of the state in the mean KL and the Fisher matrix; 0 leaves it out."""


class Chunks(NamedTuple):
    """Batch cut into equal chunks: leaves are (capacity, chunk size, ...)."""

    batch: StateBatch
    """The states, with two leading axes."""
    count: Array
    """Number of chunks that hold data; the rest is padding that is never read."""
    frames: Any = None
    """Frames of pictures, (m, height, width), or a tuple of such arrays; observations are indices
    into them."""

    def gather(self, batch: StateBatch) -> StateBatch:
        """Return a chunk with its observations; stacks of frames are gathered by their indices."""
        if self.frames is None:
            return batch
        pictures = replace_states(
            batch.observation, lambda index: gather_frames(self.frames, index)
        )
        return batch._replace(observation=pictures)


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


def cut(batch: StateBatch, chunk_size: int, capacity: int, dtype: Any) -> Chunks:
    """Cut a batch into `capacity` chunks, padded with states of weight 0.

    Args:
        batch: The states.
        chunk_size: Number of states per chunk: whole sequences, if the policy has memory.
        capacity: Number of chunks; all states must fit.
        dtype: Data type of all floating-point arrays of the result.
    """
    n = len(batch.kl_weight)

    def pad(leaf: Array) -> Array:
        rows = chunk_size * len(leaf) // n  # A carry has one row per sequence.
        if isinstance(leaf, jax.Array):  # A part of a compiled iteration.
            missing = [(0, capacity * rows - len(leaf)), *[(0, 0)] * (leaf.ndim - 1)]
            leaf = leaf.astype(dtype if leaf.dtype.kind == "f" else leaf.dtype)
            return jnp.pad(leaf, missing).reshape(capacity, rows, *leaf.shape[1:])
        leaf = np.asarray(leaf)
        shape = capacity * rows, *leaf.shape[1:]
        out = np.zeros(shape, dtype if leaf.dtype.kind == "f" else leaf.dtype)
        out[: len(leaf)] = leaf
        return out.reshape(capacity, rows, *leaf.shape[1:])

    pieces, count = jax.tree.map(pad, batch), np.int32(-(-n // chunk_size))
    index, frames = split_frames(states_of(pieces.observation))
    if frames is None:
        return Chunks(pieces, count)
    observation = replace_states(pieces.observation, lambda _: index)
    return Chunks(pieces._replace(observation=observation), count, frames)


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
        more, outputs = chunk_sums(_at(chunks.batch, index))
        sums = jax.tree.map(jnp.add, sums, more)
        return sums, jax.lax.dynamic_update_index_in_dim(kept, outputs, index, 0)

    sums, outputs = _zeros(chunk_sums, chunks.batch)
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


def reduce_chunks(
    function: Callable[[Any], Any], combine: Callable[[Any, Any], Any], data: Any, count: Array
) -> Any:
    """Apply `function` to the first `count` chunks and combine the results in order.

    Args:
        function: Function of one chunk.
        combine: Function that combines two results; zeros must be its neutral element.
        data: A pytree whose first axis is the chunk.
        count: Number of chunks that hold data.
    """

    def body(index: Array, total: Any) -> Any:
        return combine(total, function(_at(data, index)))

    return jax.lax.fori_loop(0, count, body, _zeros(function, data))


def _at(data: Any, index: Array | int) -> Any:
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), data
    )


def _zeros(function: Callable[[Any], Any], data: Any) -> Any:
    """Return zeros with the shapes of `function`'s result for one chunk."""
    shapes = jax.eval_shape(function, jax.eval_shape(lambda: _at(data, 0)))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


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
