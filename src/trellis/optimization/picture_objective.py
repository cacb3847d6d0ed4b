"""Implements `Objective` for policies on pictures whose network numba compiles.

`compiled_network` has the functions of the network, which run chunk by chunk, in one thread per
core. What follows its outputs (log-probabilities, KL, the metric M) is a small compiled JAX program
per chunk. Products with F have the form of `fisher.py`:

    F v = Σ Jᵀ M J v        J = ∂μ/∂outputs · ∂outputs/∂θ

Sums are added in the order of the chunks, so they do not depend on the number of threads.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from trellis.arrays import Array
from trellis.estimation.state_batch import Chunks, StateBatch
from trellis.estimation.surrogate import (
    Estimator,
    EvaluationSums,
    GradientSums,
    compare,
    quadratic_kl,
    surrogate_sum,
)
from trellis.optimization.fisher import weighted_metric_product
from trellis.optimization.objective import Maximum, Start
from trellis.optimization.rules import Curvature
from trellis.policies.chunk_threads import in_threads
from trellis.policies.compiled_network import as_frames, compiled_network, is_compilable
from trellis.policies.networks import num_weights
from trellis.policies.policy import Policy

KEPT_BYTES = 1 << 29
"""Largest size of the activations that are kept for all products with F."""


class _Linear(NamedTuple):
    """Values of a chunk of states at θ_old."""

    outputs: np.ndarray
    """Outputs of the network."""
    kept: Any
    """Activations of the network."""


class PictureObjective:
    """Objective over chunks of pictures in this process.

    Args:
        policy: The policy; `is_compilable` holds for its network.
        estimator: How the actions of a state are weighted.
        curvature: Curvature of the update rule.
        theta: θ_old.
        chunks: The states.
        fisher_chunks: The states that F is computed on.
        entropy_bonus: Coefficient of the entropy in L.
        kept_bytes: Largest size in bytes of activations that are kept for all products with F.
    """

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        curvature: Curvature,
        theta: Array,
        chunks: Chunks,
        fisher_chunks: Chunks,
        *,
        entropy_bonus: float = 0.0,
        kept_bytes: int = KEPT_BYTES,
    ):
        assert is_compilable(policy.network)
        self._policy, self._estimator, self._curvature = policy, estimator, curvature
        self._bonus, self._kept_bytes = entropy_bonus, kept_bytes
        self._net, self._size = compiled_network(policy.network), num_weights(policy.network)
        self._theta = np.asarray(theta)
        self._weights, self._free = self._split(self._theta)
        self._chunks, self._fisher_chunks = _cut(chunks), _cut(fisher_chunks)
        self._linear: list[_Linear | None] = []
        self._fisher_weight = _in_order([c.batch.kl_weight.sum() for c in self._fisher_chunks])
        self._sums, self._outputs = self._gradient()

    def start(self) -> Start:
        """Return L and ∇L at θ_old, with the total weights."""
        return Start(self._sums, self._fisher_weight)

    def fisher_product(self, v: Array) -> Array:
        """Return Σ weight·F_n v over the states that F is computed on."""
        if not self._linear:
            self._linear = self._linearize()
        direction, free = self._split(np.asarray(v))

        def product(chunk: "_Chunk", linear: _Linear | None) -> np.ndarray:
            outputs, kept = linear or self._forward(chunk)
            x = self._load(chunk)
            moved = self._net.tangent(self._weights, direction, x, kept)
            heads = self._policy, self._curvature
            image = _metric(*heads, outputs, self._free, moved, free, chunk.batch)
            return self._pull(x, kept, *image)

        return self._add(in_threads(product, self._fisher_chunks, self._linear))

    def max_quadratic_kl(self, direction: Array) -> Maximum:
        """Return the largest ½dᵀF_n d of any state n."""
        change, free = self._split(np.asarray(direction))

        def largest(chunk: "_Chunk") -> Any:
            x, (outputs, kept) = self._load(chunk), self._forward(chunk)
            moved = self._net.tangent(self._weights, change, x, kept)
            return _quadratic(self._policy, outputs, self._free, moved, free, chunk.batch)

        found = [np.asarray(value) for value in in_threads(largest, self._chunks)]
        return Maximum(np.max(np.stack(found)))

    def evaluate(self, direction: Array, multiple: Array) -> EvaluationSums:
        """Return how θ_old + multiple·direction compares with θ_old."""
        new = self._theta + np.asarray(multiple) * np.asarray(direction)
        weights, free = self._split(new.astype(self._theta.dtype))

        chunks = self._chunks, self._outputs

        def evaluated(chunk: "_Chunk", old: np.ndarray) -> EvaluationSums:
            outputs, _ = self._net.forward(weights, self._load(chunk))
            heads = self._policy, self._estimator, self._bonus
            return _compare(*heads, old, self._free, outputs, free, chunk.batch)

        parts = [jax.tree.map(np.asarray, part) for part in in_threads(evaluated, *chunks)]
        gain, kl, largest = (np.stack(values) for values in zip(*parts, strict=True))
        return EvaluationSums(_in_order(gain), _in_order(kl), np.max(largest))

    def _gradient(self) -> tuple[GradientSums, list[np.ndarray]]:
        """Return L and ∇L at θ_old, and the outputs of every chunk."""

        def differentiated(chunk: "_Chunk") -> tuple[Any, np.ndarray, np.ndarray]:
            x = self._load(chunk)
            outputs, kept = self._net.forward(self._weights, x)
            heads = self._policy, self._estimator, self._bonus
            value, cotangents = _surrogate(*heads, outputs, self._free, chunk.batch)
            return value, self._pull(x, kept, *cotangents), outputs

        values, outputs, gradient = [], [], np.zeros_like(self._theta)
        for value, part, chunk_outputs in in_threads(differentiated, self._chunks):
            values.append(np.asarray(value))
            gradient += part
            outputs.append(chunk_outputs)
        weights = zip(
            *((batch.surrogate_weight.sum(), batch.kl_weight.sum()) for *_, batch in self._chunks),
            strict=True,
        )
        return GradientSums(_in_order(values), gradient, *map(_in_order, weights)), outputs

    def _linearize(self) -> list[_Linear | None]:
        """Return the values of F's chunks at θ_old; None for those that do not fit in memory."""
        chunks = self._fisher_chunks
        (first,) = in_threads(self._forward, chunks[:1])
        fit = self._kept_bytes // first.kept.nbytes
        rest = in_threads(self._forward, chunks[1:fit])
        return [first, *rest, *[None] * (len(chunks) - max(fit, 1))]

    def _forward(self, chunk: "_Chunk") -> _Linear:
        return _Linear(*self._net.forward(self._weights, self._load(chunk)))

    def _load(self, chunk: "_Chunk") -> Any:
        return self._net.load(chunk.frames, chunk.observation, self._theta.dtype)

    def _pull(self, x: Any, kept: Any, cotangent: Array, free: Array) -> np.ndarray:
        """Return the gradient by θ, given cotangents of outputs and free parameters."""
        by_weights = self._net.gradient(self._weights, x, kept, np.array(cotangent))
        return np.concatenate([by_weights, np.asarray(free)])

    def _split(self, vector: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the weights of the network and the free parameters of the distribution."""
        return self._net.weights(vector), vector[self._size :]

    def _add(self, parts: Iterator[np.ndarray]) -> np.ndarray:
        total = np.zeros_like(self._theta)
        for part in parts:
            total += part
        return total


class _Chunk(NamedTuple):
    """Chunk of states."""

    frames: Any
    """All frames, (m, height, width), or a tuple of such arrays."""
    observation: Any
    """The states, with indices of frames in place of pictures."""
    batch: StateBatch
    """The states, without observations."""


def _cut(chunks: Chunks) -> list[_Chunk]:
    """Return the chunks that hold data."""
    found = []
    for position in range(int(chunks.count)):
        batch = jax.tree.map(lambda leaf, i=position: np.asarray(leaf[i]), chunks.batch)
        frames, observation = chunks.frames, batch.observation
        if frames is None:
            frames, observation = as_frames(observation)
        frames = jax.tree.map(np.asarray, frames)
        found.append(_Chunk(frames, observation, batch._replace(observation=None)))
    return found


def _in_order(values: Any) -> Any:
    """Return the sum of the values of all chunks, added one after the other."""
    return np.cumsum(np.stack(values))[-1]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _surrogate(
    policy: Policy, estimator: Estimator, bonus: float, outputs: Array, free: Array, batch: Any
) -> tuple[Array, tuple[Array, Array]]:
    """Return Σ weight·L_n and its gradients by the outputs and by the free parameters."""

    def total(outputs: Array, free: Array) -> Array:
        params = policy.distribution.params(outputs, free)
        return surrogate_sum(policy, estimator, params, batch, bonus)

    return jax.value_and_grad(total, argnums=(0, 1))(outputs, free)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _compare(
    policy: Policy,
    estimator: Estimator,
    bonus: float,
    old_outputs: Array,
    old_free: Array,
    new_outputs: Array,
    new_free: Array,
    batch: Any,
) -> EvaluationSums:
    old = policy.distribution.params(old_outputs, old_free)
    new = policy.distribution.params(new_outputs, new_free)
    return compare(policy, estimator, old, new, batch, bonus)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _metric(
    policy: Policy,
    curvature: Curvature,
    outputs: Array,
    free: Array,
    outputs_tangent: Array,
    free_tangent: Array,
    batch: Any,
) -> tuple[Array, Array]:
    """Return (∂μ)ᵀ M ∂μ of a tangent, as cotangents of the outputs and free parameters."""
    params, jacobian = jax.linearize(policy.distribution.params, outputs, free)
    image = weighted_metric_product(
        policy, curvature, params, batch, jacobian(outputs_tangent, free_tangent)
    )
    return jax.linear_transpose(jacobian, outputs, free)(image)


@functools.partial(jax.jit, static_argnums=0)
def _quadratic(
    policy: Policy,
    outputs: Array,
    free: Array,
    outputs_tangent: Array,
    free_tangent: Array,
    batch: Any,
) -> Array:
    params, tangent = jax.jvp(
        policy.distribution.params, (outputs, free), (outputs_tangent, free_tangent)
    )
    return quadratic_kl(policy, params, tangent, batch)
