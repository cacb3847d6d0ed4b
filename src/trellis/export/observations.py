"""Samples observations that an export is checked on.

They are spread around the statistics of the run: near the mean, far from it, and far beyond the
limit of normalized observations. Pictures are random bytes and noisy versions of the mean picture.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from gymnasium import spaces

from trellis.export.features import Part, categories, observation_arrays
from trellis.masks import add_mask, factor_sizes, mask_size, without_mask
from trellis.pictures import PictureLayout
from trellis.policies.saved import SavedPolicy
from trellis.spaces import Observation, Space

OBSERVATIONS = 1000
"""Number of observations that an export is checked on."""
BATCH = 50
"""Number of observations per call, which bounds the memory for pictures."""
SPREADS = (0.5, 2.0, 20.0)
"""Standard deviations of the observations, as multiples of those of the run."""


def random_observations(saved: SavedPolicy, rng: np.random.Generator) -> Iterator[Observation]:
    """Yield observations in batches."""
    space, parts = saved.spaces[0], observation_arrays(saved)
    for start in range(0, OBSERVATIONS, BATCH):
        arrays = _Arrays(saved, parts, rng, np.arange(start, start + BATCH))
        observation = arrays.observe(without_mask(space))
        if mask_size(space):
            masks = _random_masks(rng, BATCH, factor_sizes(saved.spaces[1]))
            observation = add_mask(observation, masks)
        yield observation


def _random_masks(rng: np.random.Generator, rows: int, sizes: Sequence[int]) -> np.ndarray:
    """Return masks in which every factor has at least one legal choice."""
    parts = []
    for size in sizes:
        part = rng.random((rows, size)) < 0.5
        part[np.arange(rows), rng.integers(size, size=rows)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1).astype(np.int8)


class _Arrays:
    """Samples observations part by part, around the moments of their features.

    The moments are those of the pixels of each picture, then those of the other features.

    Args:
        saved: The policy, with the moments.
        parts: Arrays of an observation.
        rng: Random numbers.
        rows: Numbers of the observations, which choose among `SPREADS`.
    """

    def __init__(
        self, saved: SavedPolicy, parts: Sequence[Part], rng: np.random.Generator, rows: np.ndarray
    ):
        moments = saved.observation_moments
        self._mean, self._std = moments.mean.ravel(), moments.std.ravel()
        self._parts, self._rng, self._rows = iter(parts), rng, rows
        layouts = [part.layout for part in parts if part.layout]
        self._pixel = 0
        self._feature = sum(math.prod(layout.shape[1:]) for layout in layouts)

    def observe(self, space: Space) -> Observation:
        """Return a batch of observations of a space, whose parts are the next ones."""
        if isinstance(space, spaces.Dict):
            return {key: self.observe(part) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self.observe(part) for part in space.spaces)
        layout = next(self._parts).layout
        return self._picture(layout) if layout else self._vector(space)

    def _picture(self, layout: PictureLayout) -> np.ndarray:
        """Return random bytes in even rows and noisy mean pictures in odd ones."""
        shape, odd = layout.shape[1:], self._rows % 2 == 1
        pixels = slice(self._pixel, self._pixel + math.prod(shape))
        self._pixel = pixels.stop
        mean, std = (values[pixels].reshape(shape) for values in (self._mean, self._std))
        count = len(self._rows)
        noise = self._rng.integers(0, 256, (count, *layout.space_shape), dtype=np.uint8)
        near = mean + std * self._rng.standard_normal((count, *layout.shape))
        noise[odd] = layout.invert(np.clip(near, 0, 255).astype(np.uint8))[odd]
        return noise

    def _vector(self, space: Space) -> np.ndarray:
        """Return categories, or numbers around the moments."""
        shape = (len(self._rows), *(space.shape or ()))
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes, starts = map(np.array, categories(space))
            self._feature += int(sizes.sum())
            values = self._rng.integers(starts, starts + sizes, (len(self._rows), len(sizes)))
            return values.reshape(shape)
        columns = slice(self._feature, self._feature + math.prod(shape[1:]))
        self._feature = columns.stop
        spread = np.take(SPREADS, self._rows % len(SPREADS))[:, None] * self._std[columns]
        noise = self._rng.standard_normal(spread.shape)
        return (self._mean[columns] + spread * noise).astype(np.float32).reshape(shape)
