"""Defines the distribution of mixed actions: a product of Gaussians and categorical factors.

The parts of an action are independent given the state, so log-probabilities, KL divergences and
entropies are sums, and the Fisher matrix is block-diagonal. An action is one row of numbers, the
parts side by side, in which choices are whole numbers. `ActionMap` gives them the structure of the
environment's Dict or Tuple space.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.gaussians import SquashedGaussian

Part = DiagGaussian | SquashedGaussian | Categoricals
"""Distribution of one part of a mixed action."""


@dataclass(frozen=True)
class Product:
    """Product of independent distributions.

    Example:
        >>> distribution = Product((DiagGaussian(1), Categoricals((3,))))
        >>> params = distribution.params(np.array([[0.5, 0.0, 2.0, 1.0]]), np.zeros(1))
        >>> distribution.mode(params).tolist()
        [[0.5, 1.0]]
    """

    parts: tuple[Part, ...]
    """Distributions of the parts, in order."""

    @property
    def num_outputs(self) -> int:
        """Number of network outputs of all parts."""
        return sum(part.num_outputs for part in self.parts)

    @property
    def num_free(self) -> int:
        """Number of free parameters of all parts."""
        return sum(part.num_free for part in self.parts)

    @property
    def logits(self) -> tuple[tuple[int, int], ...]:
        """Ranges (start, stop) of the outputs that are logits."""
        ranges = itertools.pairwise(_edges([part.num_outputs for part in self.parts]))
        pairs = zip(self.parts, ranges, strict=True)
        return tuple(edges for part, edges in pairs if isinstance(part, Categoricals))

    def params(self, outputs: Array, free: Array) -> tuple[Any, ...]:
        """Return μ of every part."""
        columns = _split(outputs, [part.num_outputs for part in self.parts])
        frees = _split(free, [part.num_free for part in self.parts])
        return tuple(
            part.params(output, own)
            for part, output, own in zip(self.parts, columns, frees, strict=True)
        )

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Return the noise of all parts, side by side."""
        return np.concatenate([part.noise(rng, batch) for part in self.parts], axis=-1)

    def sample(self, params: tuple[Any, ...], noise: Array) -> Array:
        """Return the actions that belong to the parameters and the noise."""
        noises = _split(noise, [_noise_size(part) for part in self.parts])
        samples = [part.sample(p, n) for part, p, n in self._zip(params, noises)]
        return _join(samples, noise.dtype)

    def mode(self, params: tuple[Any, ...]) -> Array:
        """Return the most probable choices, and the means of continuous parts."""
        modes = [part.mode(p) for part, p in zip(self.parts, params, strict=True)]
        first = params[0]
        return _join(modes, (first if isinstance(self.parts[0], Categoricals) else first[0]).dtype)

    def log_prob(self, params: tuple[Any, ...], action: Array) -> Array:
        """Return log π(a|s), (...), summed over parts."""
        actions = _split(action, [action_size(part) for part in self.parts])
        return _total(part.log_prob(p, a) for part, p, a in self._zip(params, actions))

    def kl(self, *, old: tuple[Any, ...], new: tuple[Any, ...]) -> Array:
        """Return KL(old ‖ new), (...), summed over parts."""
        return _total(part.kl(old=o, new=n) for part, o, n in self._zip(old, new))

    def entropy(self, params: tuple[Any, ...]) -> Array:
        """Return the entropy, (...), summed over parts."""
        return _total(part.entropy(p) for part, p in zip(self.parts, params, strict=True))

    def fisher_product(self, params: tuple[Any, ...], tangent: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return M·t; M is block-diagonal with a block per part."""
        return tuple(part.fisher_product(p, t) for part, p, t in self._zip(params, tangent))

    def _zip(self, one: Sequence[Any], other: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
        return zip(self.parts, one, other, strict=True)


def action_size(part: Part) -> int:
    """Return the number of columns of an action of one part."""
    return len(part.sizes) if isinstance(part, Categoricals) else part.size


def _noise_size(part: Part) -> int:
    return part.num_outputs if isinstance(part, Categoricals) else part.size


def _edges(sizes: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(sizes)]


def _split(x: Array, sizes: Sequence[int]) -> list[Array]:
    """Return slices of the last axis."""
    return [x[..., start:stop] for start, stop in itertools.pairwise(_edges(sizes))]


def _join(columns: Sequence[Array], dtype: Any) -> Array:
    xp = columns[0].__array_namespace__()
    return xp.concatenate([xp.astype(column, dtype) for column in columns], axis=-1)


def _total(terms: Iterator[Array]) -> Array:
    first, *others = terms
    for term in others:
        first = first + term
    return first
