"""Defines the data of a step: a batch of states with their actions, cut into chunks.

A chunk is small enough for a CPU's cache. Sums over chunks are computed one chunk at a time, so
memory does not grow with the batch. The actions of a state stay in one chunk, and so do the states
of a sequence, if the policy has memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from trellis.arrays import Array
from trellis.policies.sequences import replace_states, states_of
from trellis.sampling.frames import gather_frames, split_frames


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
        return combine(total, function(chunk_at(data, index)))

    return jax.lax.fori_loop(0, count, body, zeros_of(function, data))


def chunk_at(data: Any, index: Array | int) -> Any:
    """Return one chunk of a pytree whose first axis is the chunk."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), data
    )


def zeros_of(function: Callable[[Any], Any], data: Any) -> Any:
    """Return zeros with the shapes of `function`'s result for one chunk."""
    shapes = jax.eval_shape(function, jax.eval_shape(lambda: chunk_at(data, 0)))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
