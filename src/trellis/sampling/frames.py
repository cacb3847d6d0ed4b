"""Pictures stored once: observations that are stacks of the last frames, kept as indices.

Each frame is part of the stacks of several steps. A `FrameStore` holds it once, as bytes. `Stacks`
are indices into the store that behave like an array of observations as far as samplers and
estimators need: they can be indexed and reshaped over their leading dimensions. Compiled code
gathers the pictures chunk by chunk.
"""

import functools
import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Shaped
from numpy.typing import DTypeLike

ALIGNMENT = 64
"""Alignment in bytes of memory that XLA can use without copying."""


class FrameStore:
    """A growing array of frames, of which the first `count` are in use."""

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: DTypeLike = np.uint8):
        self.frames = _aligned_zeros(capacity, shape, np.dtype(dtype))
        self.count = 0

    def add(self, frames: Shaped[np.ndarray, "n height width"]) -> Int[np.ndarray, " n"]:
        """Store these frames and return their indices."""
        first, self.count = self.count, self.count + len(frames)
        if self.count > len(self.frames):
            capacity = max(2 * len(self.frames), self.count)
            grown = _aligned_zeros(capacity, self.frames.shape[1:], self.frames.dtype)
            grown[:first] = self.frames[:first]
            self.frames = grown
        self.frames[first : self.count] = frames
        return np.arange(first, self.count, dtype=np.int32)

    @functools.cached_property
    def on_device(self) -> jax.Array:
        """All frames as a JAX array: the same memory on a CPU, else a copy made once.

        No frame can be added afterwards.
        """
        frames = jax.device_put(self.frames, may_alias=True)
        self.frames.flags.writeable = False
        return frames


def _aligned_zeros(capacity: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate frames that compiled code can share. Untouched pages take no memory."""
    size = capacity * math.prod(shape)
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(dtype).reshape(capacity, *shape)


@jax.tree_util.register_pytree_node_class
class Stacks:
    """Observations as indices, (..., frames), into a store.

    As a pytree it has the indices as its one leaf, and the store as auxiliary data.
    """

    def __init__(self, index: Int[np.ndarray, "... frames"], store: FrameStore):
        self.index, self.store = index, store

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of pictures, (..., frames, height, width)."""
        return (*self.index.shape, *self.store.frames.shape[1:])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: Any) -> "Stacks":
        return Stacks(self.index[key], self.store)

    def reshape(self, *batch: int) -> "Stacks":
        """Change the leading dimensions; as for arrays, a last -1 stands for an observation."""
        if batch[-1] == -1:
            batch = batch[:-1]
        return Stacks(self.index.reshape(*batch, self.index.shape[-1]), self.store)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Gather the pictures, (..., frames, height, width)."""
        del copy  # gathering always copies
        return np.asarray(self.store.frames[self.index], dtype)

    def tree_flatten(self) -> tuple[tuple[np.ndarray], FrameStore]:
        """Return the leaves and the auxiliary data, for JAX."""
        return (self.index,), self.store

    @classmethod
    def tree_unflatten(cls, store: FrameStore, leaves: tuple[np.ndarray]) -> "Stacks":
        """Rebuild the stacks from auxiliary data and leaves, for JAX."""
        return cls(leaves[0], store)
