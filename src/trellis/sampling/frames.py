"""Stores the frames of picture observations once and refers to them by index.

An observation is a stack of the last frames, so each frame belongs to the observations of several
steps. A `FrameStore` holds each frame once, as bytes. `Stacks` holds indices into the store and
behaves like an array of observations: samplers and estimators can index and reshape its leading
dimensions. Compiled code gathers the pictures chunk by chunk.
"""

import functools
import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Shaped
from numpy.typing import DTypeLike

from trellis.inputs import Inputs

ALIGNMENT = 64
"""Alignment in bytes of memory that XLA can use without copying."""


jax.tree_util.register_pytree_node(
    Inputs,
    lambda inputs: ((inputs.pictures, inputs.rows), None),
    lambda _, leaves: Inputs(*leaves),
)


class FrameStore:
    """Growing array of frames, of which the first `count` are in use.

    Args:
        capacity: Number of frames to allocate at first.
        shape: Shape of one frame.
        dtype: Data type of the frames.
    """

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: DTypeLike = np.uint8):
        self.frames = _aligned_zeros(capacity, shape, np.dtype(dtype))
        self.count = 0

    def add(self, frames: Shaped[np.ndarray, "n height width"]) -> Int[np.ndarray, " n"]:
        """Store these frames and return their indices."""
        first, count = self.count, self.count + len(frames)
        if count > len(self.frames):
            self.reserve(max(2 * len(self.frames), count))
        self.count = count
        self.frames[first : self.count] = frames
        return np.arange(first, self.count, dtype=np.int32)

    def reserve(self, capacity: int) -> None:
        """Make room for this many frames in all, if there is less."""
        if capacity > len(self.frames):
            grown = _aligned_zeros(capacity, self.frames.shape[1:], self.frames.dtype)
            grown[: self.count] = self.frames[: self.count]
            self.frames = grown

    @functools.cached_property
    def on_device(self) -> jax.Array:
        """All frames as a JAX array: the same memory on a CPU, a single copy elsewhere.

        The store is read-only afterwards.
        """
        frames = jax.device_put(self.frames, may_alias=True)
        self.frames.flags.writeable = False
        return frames


def _aligned_zeros(capacity: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return zeros that compiled code can share; pages that are never written use no memory."""
    size = capacity * math.prod(shape)
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(dtype).reshape(capacity, *shape)


@jax.tree_util.register_pytree_node_class
class Stacks:
    """Picture observations as indices (..., frames) into a `FrameStore`.

    As a JAX pytree it has one leaf, the indices; the store is auxiliary data.

    Args:
        index: Indices of the frames of each observation.
        store: The store that holds the frames.
    """

    def __init__(self, index: Int[np.ndarray, "... frames"], store: FrameStore):
        self.index, self.store = index, store

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the gathered pictures, (..., frames, height, width)."""
        return (*self.index.shape, *self.store.frames.shape[1:])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, key: Any) -> "Stacks":
        return Stacks(self.index[key], self.store)

    def reshape(self, *batch: int) -> "Stacks":
        """Return the stacks with other leading dimensions.

        A last -1 means the dimensions of one observation, so that the call is the same as for
        arrays of features.
        """
        if batch[-1] == -1:
            batch = batch[:-1]
        return Stacks(self.index.reshape(*batch, self.index.shape[-1]), self.store)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Gather the pictures, (..., frames, height, width)."""
        del copy  # gathering always copies
        return np.asarray(self.store.frames[self.index], dtype)

    def tree_flatten(self) -> tuple[tuple[np.ndarray], FrameStore]:
        """Return the leaves and the auxiliary data of the pytree, for JAX."""
        return (self.index,), self.store

    @classmethod
    def tree_unflatten(cls, store: FrameStore, leaves: tuple[np.ndarray]) -> "Stacks":
        """Return the stacks with these auxiliary data and leaves, for JAX."""
        return cls(leaves[0], store)


def split_frames(observation: Any) -> tuple[Any, Any]:
    """Return observations with indices in place of pictures, and the frames on the device.

    The frames are None without stored pictures, an array for `Stacks`, and a tuple for `Inputs`.
    """
    if isinstance(observation, Stacks):
        return observation.index, observation.store.on_device
    if isinstance(observation, Inputs) and isinstance(observation.pictures[0], Stacks):
        index = tuple(picture.index for picture in observation.pictures)
        frames = tuple(picture.store.on_device for picture in observation.pictures)
        return Inputs(index, observation.rows), frames
    return observation, None


def gather_frames(frames: Any, observation: Any) -> Any:
    """Return observations with their pictures, from the result of `split_frames`."""
    if frames is None:
        return observation
    if isinstance(frames, tuple):
        pairs = zip(frames, observation.pictures, strict=True)
        return Inputs(tuple(store[index] for store, index in pairs), observation.rows)
    return frames[observation]
