"""The step on one machine: one compiled program from samples to θ (Sec. 6).

Batches are cut into chunks and padded to a capacity that grows by doubling, and the loops inside
run over the chunks that hold data: a training run whose batches vary in size compiles a handful of
times, results do not depend on the capacity, and the memory beyond the data is that of one chunk.
"""

import functools

import jax
import numpy as np

from trellis.arrays import Array
from trellis.config import StepConfig
from trellis.estimation.surrogate import Chunks, Estimator, StateBatch, cut
from trellis.optimization.fisher import choose_rows, num_rows
from trellis.optimization.objective import LocalObjective
from trellis.optimization.rules import Curvature, rule_of
from trellis.optimization.step import StepInfo, take_step
from trellis.policies.policy import Policy

LARGEST_CHUNK = 8192
"""States per chunk at most: enough to keep all cores busy, few enough to stay near the cache."""
SMALLEST_CHUNK = 16
CHUNK_BYTES = 1 << 23
"""Size of a chunk's activations at most, which makes chunks of pictures small."""


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
        curvature = rule_of(config).curvature
        if curvature is Curvature.EMPIRICAL and estimator is not Estimator.IMPORTANCE:
            raise ValueError(
                "the empirical Fisher matrix needs actions sampled from the policy along a single"
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
        """Return the new θ (or the old one, byte for byte) and what happened."""
        chunks = self.cut(theta, batch, rng)
        return local_step(self._policy, self.config, self._estimator, theta, *chunks)

    def objective(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> LocalObjective:
        """Return this batch's part of an objective that several shards share."""
        chunks = self.cut(theta, batch, rng)
        curvature = rule_of(self.config).curvature
        return LocalObjective(self._policy, self._estimator, curvature, theta, *chunks)

    def cut(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> tuple[Chunks, Chunks]:
        """Return the batch in chunks, and the states that F is computed on in chunks."""
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
    """Take the whole step as one program, compiled once for each kind of problem and capacity."""
    curvature = rule_of(config).curvature
    objective = LocalObjective(
        policy, estimator, curvature, theta, chunks, fisher_chunks, one_program=True
    )
    return take_step(objective, theta, config)


def _largest_chunk(policy: Policy) -> int:
    """Return the number of states that the cache has room for."""
    states = CHUNK_BYTES // (4 * policy.network.values_per_state)
    return max(SMALLEST_CHUNK, min(states, LARGEST_CHUNK))


def _even_chunk(states: int, largest: int) -> int:
    """Return the size of chunks that share the states evenly, a multiple of 64 up to `largest`."""
    pieces = -(-states // largest)
    return min(-(-states // (64 * pieces)) * 64, largest)


def _capacity(rows: int, chunk_size: int, current: int) -> int:
    """Return how many chunks to make room for: the current number, doubled until the rows fit."""
    while current * chunk_size < rows:
        current *= 2
    return current
