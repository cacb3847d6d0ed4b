"""The step on one machine: one compiled program from samples to θ (Sec. 6).

Batches are cut into chunks and padded to a capacity that grows by doubling, and the loops inside
run over the chunks that hold data: a training run whose batches vary in size compiles a handful of
times, results do not depend on the capacity, and the memory beyond the data is that of one chunk.
"""

import functools
from typing import Any

import jax
import numpy as np

from trellis.config import StepConfig
from trellis.estimation.surrogate import (
    Chunks,
    Estimator,
    StateBatch,
    cut,
    gradient_and_outputs,
    max_quadratic_kl,
    sum_evaluation,
)
from trellis.optimization.fisher import choose_rows, fisher_operator, num_rows
from trellis.optimization.rules import Curvature, rule_of
from trellis.optimization.step import Evaluation, StepInfo, take_step
from trellis.policies.policy import Policy

Array = Any  # a NumPy or a JAX array

LARGEST_CHUNK = 8192
"""States per chunk at most: enough to keep all cores busy, few enough to stay near the cache."""
SMALLEST_CHUNK = 16
CHUNK_BYTES = 1 << 23
"""Of a chunk's values on their way through the network, which makes chunks of pictures small."""


class LocalObjective:
    """The questions of a step, answered from chunks on this machine, at a fixed θ_old."""

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        curvature: Curvature,
        theta: Array,
        chunks: Chunks,
        fisher_chunks: Chunks,
    ):
        self._policy, self._estimator = policy, estimator
        self._theta, self._chunks = theta, chunks
        self._sums, self._outputs = gradient_and_outputs(policy, estimator, theta, chunks)
        # The same frames; as one argument of the program they are in its memory once.
        fisher_chunks = fisher_chunks._replace(frames=chunks.frames)
        if curvature is not Curvature.IDENTITY:
            self._fisher = fisher_operator(policy, curvature, theta, fisher_chunks)
            self._fisher_weight = fisher_chunks.batch.kl_weight.sum()

    def gradient(self) -> tuple[Array, Array]:
        """L(θ_old) and ∇L(θ_old)."""
        weight = self._sums.surrogate_weight
        return self._sums.surrogate / weight, self._sums.gradient / weight

    def fisher_product(self, v: Array) -> Array:
        """F v, on the subset of the data."""
        return self._fisher(v) / self._fisher_weight

    def max_quadratic_kl(self, direction: Array) -> Array:
        """The largest ½dᵀF_s d over states s."""
        return max_quadratic_kl(self._policy, self._theta, direction, self._chunks)

    def evaluate(self, direction: Array, multiple: Array) -> Evaluation:
        """L(θ) − L(θ_old), mean KL and max KL."""
        new = self._theta + multiple * direction
        sums = sum_evaluation(
            self._policy, self._estimator, self._theta, new, self._chunks, self._outputs
        )
        return Evaluation(
            sums.gain / self._sums.surrogate_weight, sums.kl / self._sums.kl_weight, sums.max_kl
        )


class TrustRegion:
    """Takes steps: `theta, info = trust_region.step(theta, batch, rng)`.

    `expected_states` is what a batch usually holds. It settles the size of the chunks, and so the
    order of the sums: the same for every batch of a run, whatever sizes came before. Where a batch
    is one of several `shards`, they share the states that the Fisher matrix needs at least.
    """

    def __init__(
        self,
        policy: Policy,
        config: StepConfig,
        estimator: Estimator = Estimator.IMPORTANCE,
        *,
        expected_states: int = 50_000,
        largest_chunk: int | None = None,
        shards: int = 1,
    ):
        if (
            rule_of(config).curvature is Curvature.EMPIRICAL
            and estimator is not Estimator.IMPORTANCE
        ):
            raise ValueError(
                "the empirical Fisher matrix needs actions drawn from the policy along a single"
                " path; with vine use method trpo"
            )
        self.config = config
        largest_chunk = largest_chunk or _largest_chunk(policy)
        wanted = num_rows(expected_states, config.fisher_fraction, shards)
        fisher_states = min(expected_states, wanted)
        self._chunk_size = _even_chunk(expected_states, largest_chunk)
        self._fisher_chunk_size = _even_chunk(fisher_states, largest_chunk)
        self._capacity = self._fisher_capacity = 1
        self._policy, self._estimator, self._shards = policy, estimator, shards

    def step(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> tuple[Array, StepInfo]:
        """The new θ (or the old one, byte for byte) and what happened."""
        chunks = self.cut(theta, batch, rng)
        return local_step(self._policy, self.config, self._estimator, theta, *chunks)

    def cut(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> tuple[Chunks, Chunks]:
        """The batch in chunks, and likewise the states that F is computed on."""
        if not len(batch.kl_weight):
            raise ValueError("a step needs at least one sample, got an empty batch")
        dtype = np.asarray(theta).dtype
        rows = choose_rows(batch.kl_weight, self.config.fisher_fraction, rng, self._shards)
        subset = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], batch)
        self._capacity = _capacity(len(batch.kl_weight), self._chunk_size, self._capacity)
        self._fisher_capacity = _capacity(len(rows), self._fisher_chunk_size, self._fisher_capacity)
        return (
            cut(batch, self._chunk_size, self._capacity, dtype),
            cut(subset, self._fisher_chunk_size, self._fisher_capacity, dtype),
        )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def local_step(
    policy: Policy,
    config: StepConfig,
    estimator: Estimator,
    theta: Array,
    chunks: Chunks,
    fisher_chunks: Chunks,
) -> tuple[Array, StepInfo]:
    """The whole step as one program, compiled once for each kind of problem and capacity."""
    objective = LocalObjective(
        policy, estimator, rule_of(config).curvature, theta, chunks, fisher_chunks
    )
    return take_step(objective, theta, config)


def _largest_chunk(policy: Policy) -> int:
    """As many states as the cache has room for."""
    states = CHUNK_BYTES // (4 * policy.network.values_per_state)
    return max(SMALLEST_CHUNK, min(states, LARGEST_CHUNK))


def _even_chunk(states: int, largest: int) -> int:
    """The size of chunks that share the states evenly, in steps of 64, at most `largest`."""
    pieces = -(-states // largest)
    return min(-(-states // (64 * pieces)) * 64, largest)


def _capacity(rows: int, chunk_size: int, current: int) -> int:
    """Chunks to make room for: what there was, doubled until the rows fit."""
    while current * chunk_size < rows:
        current *= 2
    return current
