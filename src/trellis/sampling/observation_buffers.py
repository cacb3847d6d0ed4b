"""Stores the observations of one iteration: vectors, pictures, or both together.

An `ObservationBuffer` keeps vectors. A `PictureBuffer` normalizes and stores each frame once, when
it first appears. A `SeveralBuffer` holds a picture buffer per picture and the rest as vectors.

A lane is a slice of environments. Lanes may be at different time steps.
"""

from typing import Any

import numpy as np

from trellis.inputs import Inputs
from trellis.policies.normalizer import Normalizer, normalizers_of
from trellis.sampling.frames import FrameStore, Stacks

RESERVE = 16
"""Share of spare room in a frame store: 1/RESERVE of the number of steps. New episodes need it for
the frames of their first stack."""
COLOURS = 3
"""Number of colours of a frame that is not grayscale."""
FRAMES_FOR_STATISTICS = 1024
"""Approximate number of raw frames kept per iteration, for the statistics of pixels."""


class TimeEnvArrays:
    """Named arrays over (time, environment), allocated by the first write to each name.

    Args:
        shape: Number of time steps and number of environments.
    """

    def __init__(self, shape: tuple[int, int]):
        self._shape = shape
        self._arrays: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def write(self, t: int, lane: slice, **values: np.ndarray) -> None:
        """Write the values (lane, ...) of one lane at time t."""
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None:
                array = np.empty((*self._shape, *value.shape[1:]), value.dtype)
                self._arrays[name] = array
            array[t, lane] = value


class ObservationBuffer:
    """Observations along paths: raw for running statistics, and normalized for the policy.

    The stored form is raw. Normalizing everything at the end gives the bits that the policy saw, in
    one pass instead of one per step.

    Args:
        shape: Number of time steps and number of environments.
        normalize: Function from encoded observations to the policy's inputs.
    """

    def __init__(self, shape: tuple[int, int], normalize: Normalizer):
        self._normalize, self.raw = normalize, TimeEnvArrays(shape)

    def gather(self, t: int, lane: slice, observation: Any) -> Any:
        """Record the observations of a lane at time t and return them normalized."""
        self.raw.write(t, lane, observation=observation)
        return self._normalize(observation)

    def look_up(self, ids: np.ndarray, observation: Any) -> Any:
        """Return the current observations of environments `ids` in their stored form."""
        del ids
        return observation

    def advance(self, lane: slice, old: Any, new: Any) -> None:
        """Replace the current observations of a lane after a step."""

    def start_episodes(self, ids: np.ndarray, observation: Any) -> None:
        """Replace the current observations of environments `ids` after a reset."""

    def recorded(self) -> Any:
        """Return all recorded observations in their stored form."""
        return self.raw["observation"]

    def rebuild(self, stored: Any) -> Any:
        """Return normalized observations from their stored form."""
        return self._normalize(stored)


class PictureBuffer(ObservationBuffer):
    """Observations that are stacks of frames, stored as indices into a `FrameStore`.

    If a stack has shifted by one frame, or by the three colours of one, only these are new.
    Otherwise, as for a single colour picture, all its frames are new.

    Args:
        shape: Number of time steps and number of environments.
        normalize: Function from frames to the policy's inputs.
        first: Current stacks of all environments.
    """

    def __init__(self, shape: tuple[int, int], normalize: Normalizer, first: np.ndarray):
        super().__init__(shape, normalize)
        (steps, num_envs), (stack, *frame) = shape, first.shape[1:]
        self._stored = TimeEnvArrays(shape)
        self._raw_interval = -(-steps * num_envs // FRAMES_FOR_STATISTICS)
        self.raw = TimeEnvArrays((-(-steps // self._raw_interval), num_envs))
        self._size = steps * num_envs + steps * num_envs // RESERVE
        self._first = 2 * stack * num_envs
        capacity = self._size + self._first
        self._store = FrameStore(capacity, tuple(frame), normalize(first[:1]).dtype)
        self._shifts = [1, *([COLOURS] if stack % COLOURS == 0 and stack > COLOURS else []), stack]
        self._index = np.zeros((num_envs, stack), np.int32)
        self.start_episodes(np.arange(num_envs), first)

    def gather(self, t: int, lane: slice, observation: np.ndarray) -> np.ndarray:
        """Record the stacks of a lane at time t and return them normalized."""
        raw_t, between = divmod(t, self._raw_interval)
        if not between:
            # Any frame of a stack is good; for colour pictures this alternates the channels.
            frame = observation[:, raw_t % observation.shape[1]]
            self.raw.write(raw_t, lane, observation=frame)
        index = self._index[lane]
        self._stored.write(t, lane, observation=index)
        return self._store.frames[index]

    def look_up(self, ids: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """Return the frame indices of the current stacks of environments `ids`."""
        del observation
        return self._index[ids]

    def advance(self, lane: slice, old: np.ndarray, new: np.ndarray) -> None:
        """Replace the current stacks of a lane after a step."""
        ids = np.arange(lane.start, lane.stop)
        for shift in self._shifts:
            moved_on = (new[:, :-shift] == old[:, shift:]).all(axis=(1, 2, 3))
            if moved_on.all():
                self._append(ids, new[:, -shift:])
                return
            if moved_on.any():
                self._append(ids[moved_on], new[moved_on, -shift:])
            ids, old, new = ids[~moved_on], old[~moved_on], new[~moved_on]

    def _append(self, ids: np.ndarray, frames: np.ndarray) -> None:
        """Append new frames (ids, shift, height, width) to the current stacks of environments."""
        shift = frames.shape[1]
        if shift > 1:  # At once, because a store that grows is copied.
            self._store.reserve(shift * self._size + self._first)
        added = self._store.add(self._normalize(frames.reshape(-1, *frames.shape[2:])))
        kept = self._index[ids, shift:]
        self._index[ids] = np.concatenate([kept, added.reshape(-1, shift)], axis=1)

    def start_episodes(self, ids: np.ndarray, observation: np.ndarray) -> None:
        """Replace the current stacks of environments `ids` by stacks of new frames."""
        frames = self._normalize(observation).reshape(-1, *observation.shape[2:])
        self._index[ids] = self._store.add(frames).reshape(observation.shape[:2])

    def recorded(self) -> np.ndarray:
        """Return the frame indices of all recorded stacks."""
        return self._stored["observation"]

    def rebuild(self, stored: np.ndarray) -> Stacks:
        """Return stacks from their frame indices."""
        return Stacks(stored, self._store)


class SeveralBuffer(ObservationBuffer):
    """Observations with pictures and vectors: frames are stored once, rows at every step.

    The raw observations are one frame of each picture and the features, side by side, at some of
    the time steps.

    Args:
        shape: Number of time steps and number of environments.
        normalize: Function from encoded observations to the policy's inputs.
        first: Current observations of all environments.
    """

    def __init__(self, shape: tuple[int, int], normalize: Normalizer, first: Inputs):
        super().__init__(shape, normalize)
        steps, num_envs = shape
        sides = [picture.shape[-2:] for picture in first.pictures]
        *scale, scale_rows = normalizers_of(normalize, sides)
        pairs = zip(scale, first.pictures, strict=True)
        self._pictures = [PictureBuffer(shape, each, picture) for each, picture in pairs]
        self._rows = ObservationBuffer(shape, scale_rows)
        self._raw_interval = -(-steps * num_envs // FRAMES_FOR_STATISTICS)
        self.raw = TimeEnvArrays((-(-steps // self._raw_interval), num_envs))

    def gather(self, t: int, lane: slice, observation: Inputs) -> Inputs:
        """Record the observations of a lane at time t and return them normalized."""
        raw_t, between = divmod(t, self._raw_interval)
        if not between:
            frames = [p[:, raw_t % p.shape[1]].reshape(len(p), -1) for p in observation.pictures]
            row = np.concatenate([*frames, observation.rows], axis=1, dtype=np.float32)
            self.raw.write(raw_t, lane, observation=row)
        pairs = zip(self._pictures, observation.pictures, strict=True)
        pictures = tuple(buffer.gather(t, lane, picture) for buffer, picture in pairs)
        return Inputs(pictures, self._rows.gather(t, lane, observation.rows))

    def look_up(self, ids: np.ndarray, observation: Inputs) -> Inputs:
        """Return the current observations of environments `ids` in their stored form."""
        pairs = zip(self._pictures, observation.pictures, strict=True)
        pictures = tuple(buffer.look_up(ids, picture) for buffer, picture in pairs)
        return Inputs(pictures, self._rows.look_up(ids, observation.rows))

    def advance(self, lane: slice, old: Inputs, new: Inputs) -> None:
        """Replace the current observations of a lane after a step."""
        for buffer, before, after in zip(self._pictures, old.pictures, new.pictures, strict=True):
            buffer.advance(lane, before, after)

    def start_episodes(self, ids: np.ndarray, observation: Inputs) -> None:
        """Replace the current observations of environments `ids` after a reset."""
        for buffer, picture in zip(self._pictures, observation.pictures, strict=True):
            buffer.start_episodes(ids, picture)

    def recorded(self) -> Inputs:
        """Return all recorded observations in their stored form."""
        pictures = tuple(buffer.recorded() for buffer in self._pictures)
        return Inputs(pictures, self._rows.recorded())

    def rebuild(self, stored: Inputs) -> Inputs:
        """Return normalized observations from their stored form."""
        pairs = zip(self._pictures, stored.pictures, strict=True)
        pictures = tuple(buffer.rebuild(picture) for buffer, picture in pairs)
        return Inputs(pictures, self._rows.rebuild(stored.rows))


def make_observation_buffer(
    shape: tuple[int, int], normalize: Normalizer, first: np.ndarray | Inputs
) -> ObservationBuffer:
    """Return the buffer for observations of the kind of `first`, the current ones."""
    if isinstance(first, Inputs):
        return SeveralBuffer(shape, normalize, first)
    if is_pictures(first):
        return PictureBuffer(shape, normalize, first)
    return ObservationBuffer(shape, normalize)


def is_pictures(observation: np.ndarray) -> bool:
    """Return whether observations are stacks of frames: bytes (env, frames, height, width)."""
    return observation.dtype in (np.uint8, np.int8) and observation.ndim == 4
