"""Runs the whole step on one machine, as one compiled program if possible (Sec. 6).

Batches are cut into chunks and padded to a capacity that grows by doubling. The compiled loops run
only over the chunks that hold data. So a training run with batches of varying size compiles only a
few times, and results do not depend on the capacity. The step needs the memory of one chunk in
addition to the data. Steps of policies on pictures are plain Python around a network that numba
compiles (`picture_objective.py`), because XLA's convolutions are slow.
"""

import functools

import jax
import numpy as np

from trellis.arrays import Array
from trellis.config import StepConfig
from trellis.estimation.state_batch import Chunks, StateBatch, cut
from trellis.estimation.surrogate import Estimator
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.fisher import choose_rows, num_rows
from trellis.optimization.objective import LocalObjective
from trellis.optimization.picture_objective import PictureObjective
from trellis.optimization.rules import Curvature, StepSize, rule_of
from trellis.optimization.solved_step import require_tractable, take_solved_step
from trellis.optimization.step import AS_CONFIGURED, StepInfo, StepInputs, take_step
from trellis.policies.compiled_network import is_compilable
from trellis.policies.policy import Policy
from trellis.policies.sequences import sequence_length

LARGEST_CHUNK = 8192
"""Largest number of states per chunk: it keeps all cores busy and fits in the cache."""
SMALLEST_CHUNK = 16
"""Smallest number of states per chunk."""
CHUNK_BYTES = 1 << 23
"""Largest size of a chunk's activations in bytes; it makes chunks of pictures small."""


class TrustRegion:
    """Takes trust-region steps: `theta, info = trust_region.step(theta, batch, rng)`.

    Args:
        policy: The policy.
        config: Settings of the step.
        estimator: How the actions of a state are weighted.
        expected_states: Usual number of states in a batch. It determines the chunk size and so the
            order of sums, which is the same for every batch of a run.
        largest_chunk: Largest number of states per chunk. Default: what fits in the cache.
        shards: Number of batches that share a step; together they use at least the smallest number
            of states for the Fisher matrix.
        sequence_length: Number of states per sequence of a policy with memory. Chunks hold whole
            sequences.

    Raises:
        ValueError: The update rule does not fit the estimator or the size of the policy.
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
        sequence_length: int = 1,
    ):
        curvature = rule_of(config).curvature
        self._solves = rule_of(config).step_size is StepSize.SOLVED
        if self._solves:
            require_tractable(policy)
        if curvature is Curvature.EMPIRICAL and estimator is not Estimator.IMPORTANCE:
            raise ValueError(
                "the method empirical-fim needs actions that the policy sampled, as single path"
                " has: with the vine sampler use the method trpo"
            )
        self.config = config
        largest_chunk = largest_chunk or largest_chunk_of(policy)
        wanted = num_rows(expected_states, config.fisher_fraction, shards)
        fisher_states = min(expected_states, wanted)
        self._chunk_size = even_chunk(expected_states, largest_chunk, sequence_length)
        self._fisher_chunk_size = even_chunk(fisher_states, largest_chunk, sequence_length)
        self._capacity = self._fisher_capacity = 1
        self._policy, self._estimator, self._shards = policy, estimator, shards

    def step(
        self,
        theta: Array,
        batch: StateBatch,
        rng: np.random.Generator,
        inputs: StepInputs = AS_CONFIGURED,
    ) -> tuple[Array, StepInfo]:
        """Take one step.

        Args:
            theta: θ_old.
            batch: The states with their actions and values.
            rng: Source of the subset of states for the Fisher matrix.
            inputs: δ of this step, and lower bounds of θ.

        Returns:
            The new θ, or θ_old byte for byte if the step was rejected; and a description of the
            step.
        """
        if self._solves:
            start = self.objective(theta, batch, rng).start()
            max_kl = self.config.max_kl if inputs.max_kl is None else float(inputs.max_kl)
            problem = theta, batch, max_kl, rng
            return take_solved_step(self._policy, self._estimator, start, *problem)
        if is_compilable(self._policy.network):
            objective = self.objective(theta, batch, rng)
            return take_step(objective, theta, self.config, python_while, inputs)
        chunks = self.cut(theta, batch, rng)
        return local_step(self._policy, self.config, self._estimator, theta, *chunks, inputs)

    def objective(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> LocalObjective | PictureObjective:
        """Return this batch's part of an objective that several shards share."""
        chunks = self.cut(theta, batch, rng)
        curvature = rule_of(self.config).curvature
        kind = PictureObjective if is_compilable(self._policy.network) else LocalObjective
        return kind(
            self._policy,
            self._estimator,
            curvature,
            theta,
            *chunks,
            entropy_bonus=self.config.entropy_bonus,
        )

    def cut(
        self, theta: Array, batch: StateBatch, rng: np.random.Generator
    ) -> tuple[Chunks, Chunks]:
        """Return the batch in chunks, and the states that F is computed on in chunks."""
        if not len(batch.kl_weight):
            raise ValueError("a step needs at least one state, got an empty batch")
        dtype = np.asarray(theta).dtype
        length, fraction = sequence_length(batch.observation), self.config.fisher_fraction
        if self._chunk_size % length:
            raise ValueError(f"chunks of {self._chunk_size} states would cut sequences of {length}")
        rows = choose_rows(batch.kl_weight, fraction, rng, self._shards, length)
        subset = _select(batch, rows, length)
        fisher_states, size = len(subset.kl_weight), self._fisher_chunk_size
        self._capacity = _capacity(len(batch.kl_weight), self._chunk_size, self._capacity)
        self._fisher_capacity = _capacity(fisher_states, size, self._fisher_capacity)
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
    inputs: StepInputs = AS_CONFIGURED,
) -> tuple[Array, StepInfo]:
    """Take the whole step as one program, compiled once per policy, configuration and capacity."""
    curvature = rule_of(config).curvature
    objective = LocalObjective(
        policy,
        estimator,
        curvature,
        theta,
        chunks,
        fisher_chunks,
        entropy_bonus=config.entropy_bonus,
        one_program=True,
    )
    return take_step(objective, theta, config, inputs=inputs)


def largest_chunk_of(policy: Policy) -> int:
    """Return the number of states whose activations fit in the cache."""
    states = CHUNK_BYTES // (4 * policy.network.values_per_state)
    return max(SMALLEST_CHUNK, min(states, LARGEST_CHUNK))


def _select(batch: StateBatch, rows: np.ndarray, length: int) -> StateBatch:
    """Return some states of a batch, or some of its sequences of `length` states."""
    if length == 1:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], batch)
    sequences = len(batch.kl_weight) // length

    def select(leaf: Array) -> np.ndarray:
        leaf = np.asarray(leaf)
        chosen = leaf.reshape(sequences, -1, *leaf.shape[1:])[rows]
        return chosen.reshape(-1, *leaf.shape[1:])

    return jax.tree.map(select, batch)


def even_chunk(states: int, largest: int, length: int = 1) -> int:
    """Return a chunk size that divides the states evenly: a multiple of 64, at most `largest`.

    Sequences of `length` states are kept whole, so that a chunk holds at least one.
    """
    if length > 1:
        sequences, most = -(-states // length), max(largest // length, 1)
        pieces = -(-sequences // most)
        return -(-sequences // pieces) * length
    pieces = -(-states // largest)
    return min(-(-states // (64 * pieces)) * 64, largest)


def _capacity(rows: int, chunk_size: int, current: int) -> int:
    """Return the number of chunks to allocate: the current one, doubled until all rows fit."""
    while current * chunk_size < rows:
        current *= 2
    return current
