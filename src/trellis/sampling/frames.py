"""Pictures stored once: observations that are stacks of the last frames, kept as indices.

Each frame is in the stacks of four steps. A `FrameStore` has it once, as bytes, and `Stacks` are
rows of indices into it that behave like an array of observations as far as samplers and estimators
need: they can be indexed and reshaped over their leading dimensions. Whoever needs the pictures
gathers those that it looks at; compiled code gathers chunk by chunk.
"""

import math
from typing import Any

import jax
import numpy as np

ALIGNMENT = 64
"""Bytes; what XLA asks of memory that it is to use without copying."""
RESERVE = 16
"""A store has room for one frame in so many more than the steps of an iteration bring: an episode
begins with frames of its own."""


def is_pictures(observation: Any) -> bool:
    """Whether these are stacks of frames, (n, frames, height, width) of bytes."""
    return isinstance(observation, np.ndarray) and (
        observation.dtype == np.uint8 and observation.ndim == 4
    )


class FrameStore:
    """Frames (capacity, height, width), of which the first `count` are there."""

    def __init__(self, capacity: int, shape: tuple[int, ...]):
        self.frames = _aligned_zeros(capacity, shape)
        self.count = 0
        self._on_device: jax.Array | None = None

    def add(self, frames: np.ndarray) -> np.ndarray:
        """Takes frames (n, height, width) in; their indices, (n,)."""
        first, self.count = self.count, self.count + len(frames)
        if self.count > len(self.frames):
            capacity = max(2 * len(self.frames), self.count)
            grown = _aligned_zeros(capacity, self.frames.shape[1:])
            grown[:first] = self.frames[:first]
            self.frames = grown
        self.frames[first : self.count] = frames
        return np.arange(first, self.count, dtype=np.int32)

    @property
    def on_device(self) -> jax.Array:
        """All frames where compiled code can gather them: on a CPU the same memory, else copied
        once. None may come after."""
        frames = self._on_device
        if frames is None:
            frames = self._on_device = jax.device_put(self.frames, may_alias=True)
            self.frames.flags.writeable = False
        return frames


def _aligned_zeros(capacity: int, shape: tuple[int, ...]) -> np.ndarray:
    """Frames that compiled code can share; pages that nothing was written to take no memory."""
    size = capacity * math.prod(shape)
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].reshape(capacity, *shape)


@jax.tree_util.register_pytree_node_class
class Stacks:
    """Observations as indices, (..., frames), into a store.

    To functions over pytrees the indices are the one leaf, and the store stays as it is.
    """

    def __init__(self, index: Any, store: FrameStore):
        self.index, self.store = index, store

    @property
    def shape(self) -> tuple[int, ...]:
        """As the array of pictures would have it."""
        return (*self.index.shape, *self.store.frames.shape[1:])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> "Stacks":
        return Stacks(self.index[rows], self.store)

    def reshape(self, *lead: int) -> "Stacks":
        """With other leading dimensions; as for arrays, a last -1 stands for an observation."""
        if lead[-1] == -1:
            lead = lead[:-1]
        return Stacks(self.index.reshape(*lead, self.index.shape[-1]), self.store)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The pictures, (..., frames, height, width), gathered."""
        del copy  # there is no other way
        return np.asarray(self.store.frames[self.index], dtype)

    def tree_flatten(self) -> tuple[tuple[Any], FrameStore]:
        """The indices, and the store as what they are about."""
        return (self.index,), self.store

    @classmethod
    def tree_unflatten(cls, store: FrameStore, leaves: tuple[Any]) -> "Stacks":
        """And back."""
        return cls(leaves[0], store)


class PathMemory:
    """What a sampler keeps of the observations along its paths: arrays, or stacks by index."""

    def __init__(self, first: np.ndarray, steps: int):
        self._store: FrameStore | None = None
        if is_pictures(first):
            paths, stack = first.shape[:2]
            room = steps * paths
            room += room // RESERVE + 2 * stack * paths
            self._store = FrameStore(room, first.shape[2:])
            self._index = np.zeros((paths, stack), np.int32)
            self.begin(np.arange(paths), first)

    def begin(self, ids: np.ndarray, first: np.ndarray) -> None:
        """Rows `ids` begin an episode, or go on with one, with these observations."""
        if self._store is not None:
            indices = self._store.add(first.reshape(-1, *first.shape[2:]))
            self._index[ids] = indices.reshape(first.shape[:2])

    def advance(self, observation: np.ndarray) -> None:
        """All rows have made a step: one new frame each."""
        if self._store is not None:
            new = self._store.add(observation[:, -1])
            self._index = np.concatenate([self._index[:, 1:], new[:, None]], axis=1)

    def mark(self, observation: np.ndarray) -> np.ndarray:
        """What to keep of the rows' present observations."""
        return observation if self._store is None else self._index.copy()

    def recall(self, marks: Any) -> Any:
        """Observations from an array of marks."""
        return marks if self._store is None else Stacks(marks, self._store)
