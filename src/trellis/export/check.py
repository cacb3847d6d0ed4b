"""Compares an exported policy with `SavedPolicy` on random observations.

Observations are spread around the statistics of the run: near the mean, far from it, and far beyond
the limit of normalized observations. Pictures are random bytes and noisy versions of the mean
picture.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from gymnasium import spaces

from trellis.actions import box_range
from trellis.export.program import ExportError, Program, categories, input_arrays, layout_of
from trellis.masks import add_mask, factor_sizes, mask_size, without_mask
from trellis.moments import Moments
from trellis.pictures import PictureLayout
from trellis.policies.distributions import Categoricals
from trellis.policies.masked import legal_choices
from trellis.policies.saved import SavedPolicy
from trellis.spaces import Observation, Space, observation_encoder

OBSERVATIONS = 1000
"""Number of observations that an export is checked on."""
BATCH = 50
"""Number of observations per call, which bounds the memory for pictures."""
SPREADS = (0.5, 2.0, 20.0)
"""Standard deviations of the observations, as multiples of those of the run."""
TOLERANCE = 1e-5
"""Largest allowed error, as a fraction of the action's range or of the largest logit, or absolute
where these are below 1."""

Run = Callable[[Sequence[np.ndarray]], np.ndarray]
"""A function from the inputs of a program, with a batch axis, to actions."""


def verify(saved: SavedPolicy, program: Program, run: Run, *, seed: int = 0) -> float:
    """Compare an exported policy with ours and return the largest error.

    Args:
        saved: The policy.
        program: Its program, which names the inputs.
        run: The exported policy in its own runtime.
        seed: Seed of the observations.

    Returns:
        The largest error as a fraction of the tolerance's scale; 0 for equal discrete actions.

    Raises:
        ExportError: An action differs.
    """
    worst = 0.0
    for observation in _batches(saved, np.random.default_rng(seed)):
        expected = np.asarray(saved.act(observation, deterministic=True))
        got = np.asarray(run(input_arrays(program, observation)))
        if got.shape != expected.shape:
            raise ExportError(
                f"the exported policy returns actions of shape {got.shape[1:]}, not"
                f" {expected.shape[1:]}; nothing was written"
            )
        worst = max(worst, _error(saved, observation, expected, got))
    if not worst <= TOLERANCE:
        raise ExportError(
            f"the exported policy differs from ours by {worst:.2g}, more than {TOLERANCE:g};"
            " nothing was written. Check that the parameters are finite, or use another --format"
        )
    return worst


def _error(
    saved: SavedPolicy, observation: Observation, expected: np.ndarray, got: np.ndarray
) -> float:
    """Return the largest error of a batch of actions."""
    space = saved.spaces[1]
    if isinstance(space, spaces.Box):
        half = box_range(space)[4]
        scale = np.maximum(1.0, np.abs(expected) if half is None else half)
        error = np.abs(got.astype(np.float64) - expected) / scale
    else:
        # Rounding may decide between logits that are equal to all digits that count.
        logits = _logits(saved, observation)
        legal = np.where(legal_choices(logits), np.abs(logits), 0.0)
        scale = np.maximum(1.0, legal.max(axis=1, keepdims=True))
        chosen = [_choices(saved, logits, actions) for actions in (expected, got)]
        error = np.abs(chosen[0] - chosen[1]) / scale
    return float(np.max(error, initial=0.0)) if np.isfinite(error).all() else np.inf


def _logits(saved: SavedPolicy, observation: Observation) -> np.ndarray:
    encode = observation_encoder(saved.spaces[0], saved.config.policy.pictures)[1]
    features = saved.normalizer(encode(observation))
    return np.asarray(saved.policy.outputs(saved.theta, features), np.float64)


def _choices(saved: SavedPolicy, logits: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the logits of the chosen actions, one per factor."""
    distribution = saved.policy.distribution
    assert isinstance(distribution, Categoricals)
    sizes = np.array(distribution.sizes)
    start = getattr(saved.spaces[1], "start", 0)
    index = np.reshape(actions - start, (len(actions), len(sizes))).astype(np.int64)
    if (index < 0).any() or (index >= sizes).any():
        return np.full(index.shape, np.inf)
    return np.take_along_axis(logits, index + np.cumsum(sizes) - sizes, axis=1)


def _batches(saved: SavedPolicy, rng: np.random.Generator) -> Iterator[Observation]:
    """Yield observations in batches."""
    space, layout = saved.spaces[0], layout_of(saved)
    for start in range(0, OBSERVATIONS, BATCH):
        rows = np.arange(start, start + BATCH)
        if layout:
            yield _pictures(saved, layout, rng, rows)
        else:
            vectors = _Vectors(saved.observation_moments, rng, rows)
            observation = vectors.observe(without_mask(space))
            if mask_size(space):
                masks = _random_masks(rng, len(rows), factor_sizes(saved.spaces[1]))
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


def _pictures(
    saved: SavedPolicy, layout: PictureLayout, rng: np.random.Generator, rows: np.ndarray
) -> np.ndarray:
    """Return random bytes in even rows and noisy mean pictures in odd ones."""
    noise = rng.integers(0, 256, (len(rows), *layout.space_shape), dtype=np.uint8)
    moments = saved.observation_moments
    near = moments.mean + moments.std * rng.standard_normal((len(rows), *layout.shape))
    noise[rows % 2 == 1] = layout.invert(np.clip(near, 0, 255).astype(np.uint8))[rows % 2 == 1]
    return noise


class _Vectors:
    """Samples observations part by part, around the moments of their features.

    Args:
        moments: Moments of all features, in the order of the parts.
        rng: Random numbers.
        rows: Numbers of the observations, which choose among `SPREADS`.
    """

    def __init__(self, moments: Moments, rng: np.random.Generator, rows: np.ndarray):
        self._mean, self._std = moments.mean, moments.std
        self._rng, self._rows = rng, rows
        self._start = 0

    def observe(self, space: Space) -> Observation:
        """Return a batch of observations of a space, whose features are the next ones."""
        if isinstance(space, spaces.Dict):
            return {key: self.observe(part) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self.observe(part) for part in space.spaces)
        shape = (len(self._rows), *(space.shape or ()))
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            sizes, starts = map(np.array, categories(space))
            self._start += int(sizes.sum())
            values = self._rng.integers(starts, starts + sizes, (len(self._rows), len(sizes)))
            return values.reshape(shape)
        columns = slice(self._start, self._start + int(np.prod(shape[1:])))
        self._start = columns.stop
        spread = np.take(SPREADS, self._rows % len(SPREADS))[:, None] * self._std[columns]
        noise = self._rng.standard_normal(spread.shape)
        return (self._mean[columns] + spread * noise).astype(np.float32).reshape(shape)
