"""Pictures stored once: observations that are stacks of the last frames, kept as indices.

Each frame is in the stacks of four steps. A `FrameStore` has it once, as bytes, and `Stacks` are
rows of indices into it that behave like an array of observations as far as samplers and estimators
need: they can be indexed and reshaped over their leading dimensions. Whoever needs the pictures
gathers those that it looks at; compiled code gathers chunk by chunk.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from trellis.sampling.samples import Columns

ALIGNMENT = 64
"""Bytes; what XLA asks of memory that it is to use without copying."""
RESERVE = 16
"""A store has room for one frame in so many more than the steps of an iteration bring: an episode
begins with frames of its own."""
FRAMES_FOR_STATISTICS = 1024
"""About how many of an iteration's frames are kept as they were, for the statistics of pixels."""


def is_pictures(observation: Any) -> bool:
    """Whether these are stacks of frames, (n, frames, height, width) of bytes."""
    return isinstance(observation, np.ndarray) and (
        observation.dtype in (np.uint8, np.int8) and observation.ndim == 4
    )


class FrameStore:
    """Frames (capacity, height, width), of which the first `count` are there."""

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: Any = np.uint8):
        self.frames = _aligned_zeros(capacity, shape, dtype)
        self.count = 0
        self._on_device: jax.Array | None = None

    def add(self, frames: np.ndarray) -> np.ndarray:
        """Takes frames (n, height, width) in; their indices, (n,)."""
        first, self.count = self.count, self.count + len(frames)
        if self.count > len(self.frames):
            capacity = max(2 * len(self.frames), self.count)
            grown = _aligned_zeros(capacity, self.frames.shape[1:], self.frames.dtype)
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


def _aligned_zeros(capacity: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Frames that compiled code can share; pages that nothing was written to take no memory."""
    size = capacity * math.prod(shape)
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(dtype).reshape(capacity, *shape)


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
    """What the policy sees along a sampler's paths, and what of it is kept: arrays, or pictures
    that are normalized when they are new and then stored once.

    A stack that has moved on by a frame has one that is new; any other, such as the colours of a
    picture, is new as a whole.
    """

    def __init__(self, first: np.ndarray, steps: int, normalize: Callable[[Any], Any]):
        self._normalize = normalize
        self._store: FrameStore | None = None
        paths = len(first)
        self._every = 1
        if is_pictures(first):
            stack = first.shape[1]
            room = steps * paths
            self._every = -(-room // FRAMES_FOR_STATISTICS)
            room += room // RESERVE + 2 * stack * paths
            self._store = FrameStore(room, first.shape[2:], normalize(first[:1]).dtype)
            self._index = np.zeros((paths, stack), np.int32)
            self._last = np.zeros_like(first)
            self.begin(np.arange(paths), first)
        self._raw = Columns((-(-steps // self._every), paths))

    def begin(self, ids: np.ndarray, first: np.ndarray) -> None:
        """Rows `ids` begin an episode, or go on with one, with these observations."""
        if self._store is not None:
            frames = self._normalize(first).reshape(-1, *first.shape[2:])
            self._index[ids] = self._store.add(frames).reshape(first.shape[:2])
            self._last[ids] = first

    def advance(self, rows: slice, observation: np.ndarray) -> None:
        """These rows have made a step."""
        if self._store is None:
            return
        moved_on = (observation[:, :-1] == self._last[rows, 1:]).all(axis=(1, 2, 3))
        ids = np.arange(rows.start, rows.stop)
        if not moved_on.all():
            self.begin(ids[~moved_on], observation[~moved_on])
            ids, observation = ids[moved_on], observation[moved_on]
        new = self._store.add(self._normalize(observation[:, -1]))
        self._index[ids] = np.concatenate([self._index[ids, 1:], new[:, None]], axis=1)
        self._last[ids] = observation

    def look(self, t: int, rows: slice, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows' observations at time t as the policy sees them, and what to keep of that."""
        if t % self._every == 0:
            # Of a stack any frame will do; of colours, each in its turn.
            count = t // self._every
            is_stack = self._store is not None
            noted = observation[:, count % observation.shape[1]] if is_stack else observation
            self._raw.put(count, rows, noted)
        if self._store is None:
            seen = self._normalize(observation)
            return seen, seen
        index = self._index[rows]
        return self._store.frames[index], index

    @property
    def raw(self) -> np.ndarray:
        """What was looked at, before normalization; of pictures, some of their frames."""
        return self._raw.arrays[0]

    def see(self, ids: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """What is kept of observations that end the paths of rows `ids`."""
        return self._normalize(observation) if self._store is None else self._index[ids]

    def recall(self, kept: Any) -> Any:
        """Observations from an array of what was kept."""
        return kept if self._store is None else Stacks(kept, self._store)
