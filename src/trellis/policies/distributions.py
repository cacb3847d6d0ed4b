"""Distributions over actions (App. D): sampling, log-probability, KL, entropy, and the metric M.

A distribution is described by parameters μ that a network computes: mean and log standard deviation
for `DiagGaussian`, logits for `Categoricals`. M = ∂²kl/∂μ² at equal arguments is the Fisher matrix
in those coordinates, the middle of JᵀMJ (App. C.1); `fisher_product` multiplies by it.

Sampling is a deterministic function of parameters and noise, so that rollouts can share their noise
(Sec. 5.2, common random numbers). All functions take NumPy and JAX arrays alike: samplers use the
one, everything that is differentiated or compiled the other. Leading axes are batch axes; a leaf of
μ that does not depend on the state has none.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trellis.arrays import Array


class Distribution(Protocol):
    """What a policy asks of its distribution."""

    @property
    def num_outputs(self) -> int:
        """How many numbers the network computes for it."""
        ...

    @property
    def num_free(self) -> int:
        """How many of its parameters do not depend on the state."""
        ...

    def params(self, outputs: Array, free: Array) -> Any:
        """Return μ from the network's outputs and the free parameters."""
        ...

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray: ...
    def sample(self, params: Any, noise: Array) -> Array: ...
    def mode(self, params: Any) -> Array: ...
    def log_prob(self, params: Any, action: Array) -> Array: ...
    def kl(self, *, old: Any, new: Any) -> Array: ...
    def entropy(self, params: Any) -> Array: ...
    def fisher_product(self, params: Any, tangent: Any) -> Any: ...


class GaussianParams(NamedTuple):
    """μ of a Gaussian."""

    mean: Array
    """(..., size)."""
    log_std: Array
    """(size,), the same for all states."""


@dataclass(frozen=True)
class DiagGaussian:
    """Independent normals; the mean comes from the network, the log std is free of the state."""

    size: int

    @property
    def num_outputs(self) -> int:
        """The means."""
        return self.size

    @property
    def num_free(self) -> int:
        """The log standard deviations."""
        return self.size

    def params(self, outputs: Array, free: Array) -> GaussianParams:
        """Means from the network, one log std for all states."""
        return GaussianParams(outputs, free)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Standard normals."""
        return rng.standard_normal((*batch, self.size), dtype=np.float32)

    def sample(self, params: GaussianParams, noise: Array) -> Array:
        """mean + std · noise."""
        xp = params.mean.__array_namespace__()
        return params.mean + xp.exp(params.log_std) * noise

    def mode(self, params: GaussianParams) -> Array:
        """The mean."""
        return params.mean

    def log_prob(self, params: GaussianParams, action: Array) -> Array:
        """log π(a|s), (...)."""
        xp = params.mean.__array_namespace__()
        z = (action - params.mean) * _inverse_std(params.log_std)
        normalizer = xp.sum(params.log_std + 0.5 * math.log(2 * math.pi), axis=-1)
        return -0.5 * xp.sum(z * z, axis=-1) - normalizer

    def kl(self, *, old: GaussianParams, new: GaussianParams) -> Array:
        """KL(old‖new), (...): ½Σ[e²ᵈ − 1 − 2d + (Δmean/std_new)²], d = log(std_old/std_new).

        Written so that it is exactly 0 for equal arguments and keeps its digits near them.
        """
        xp = old.mean.__array_namespace__()
        z = (old.mean - new.mean) * _inverse_std(new.log_std)
        widths = _exp_excess(2.0 * (old.log_std - new.log_std))
        return 0.5 * (xp.sum(z * z, axis=-1) + xp.sum(widths, axis=-1))

    def entropy(self, params: GaussianParams) -> Array:
        """Differential entropy, (...)."""
        xp = params.mean.__array_namespace__()
        total = xp.sum(params.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)
        return xp.broadcast_to(total, params.mean.shape[:-1])

    def fisher_product(self, params: GaussianParams, tangent: GaussianParams) -> GaussianParams:
        """M·t: 1/std² for the means, 2 for the log stds, nothing across."""
        inverse = _inverse_std(params.log_std)
        return GaussianParams(tangent.mean * inverse * inverse, 2.0 * tangent.log_std)


@dataclass(frozen=True)
class Categoricals:
    """Independent categorical factors of any sizes; μ are the logits of all, side by side.

    One factor is a Discrete action, K factors MultiDiscrete, K factors of two MultiBinary. Actions
    are integers (..., K), counted from 0.
    """

    sizes: tuple[int, ...]

    def __post_init__(self):
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be one or more positive numbers, got {self.sizes}")

    @property
    def num_outputs(self) -> int:
        """A logit per choice of each factor."""
        return sum(self.sizes)

    @property
    def num_free(self) -> int:
        """Everything depends on the state."""
        return 0

    def params(self, outputs: Array, free: Array) -> Array:
        """The logits as they come."""
        del free
        return outputs

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Standard Gumbel, −log of a standard exponential, for each logit."""
        exponential = rng.standard_exponential((*batch, self.num_outputs), dtype=np.float32)
        return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))

    def sample(self, params: Array, noise: Array) -> Array:
        """The Gumbel trick: argmax of logits plus noise, factor by factor."""
        return self.mode(params + noise)

    def mode(self, params: Array) -> Array:
        """The most probable choice of each factor."""
        xp = params.__array_namespace__()
        choices = [xp.argmax(block, axis=-1) for block, _ in self._blocks(params)]
        return xp.concatenate(choices, axis=-1)

    def log_prob(self, params: Array, action: Array) -> Array:
        """log π(a|s), (...), the sum over factors."""
        xp = params.__array_namespace__()
        total = 0.0
        for block, factors in self._blocks(params):
            # A comparison rather than a gather: its derivative is cheap.
            chosen = action[..., factors, None] == xp.arange(block.shape[-1])
            picked = xp.where(chosen, _log_softmax(block), 0.0)
            total = total + xp.sum(picked, axis=(-2, -1))
        return total

    def kl(self, *, old: Array, new: Array) -> Array:
        """KL(old‖new), (...): Σ p_old·(eᵈ − 1 − d) with d = log p_new − log p_old.

        Equal to the usual Σ p_old·(−d) since both distributions sum to 1; every term is
        nonnegative, so that it is exactly 0 for equal arguments and keeps its digits near them.
        """
        xp = old.__array_namespace__()
        total = 0.0
        pairs = zip(self._blocks(old), self._blocks(new), strict=True)
        for (old_block, _), (new_block, _) in pairs:
            old_log, new_log = _log_softmax(old_block), _log_softmax(new_block)
            old_prob, difference = xp.exp(old_log), new_log - old_log
            near = xp.abs(difference) < 1.0
            close_by = old_prob * _exp_excess(xp.where(near, difference, 0.0))
            # Far apart e^d may overflow where p_old is tiny; p_old·e^d is p_new.
            far_away = xp.exp(new_log) - old_prob - old_prob * difference
            total = total + xp.sum(xp.where(near, close_by, far_away), axis=(-2, -1))
        return total

    def entropy(self, params: Array) -> Array:
        """The sum of the factors' entropies, (...)."""
        xp = params.__array_namespace__()
        total = 0.0
        for block, _ in self._blocks(params):
            log_prob = _log_softmax(block)
            total = total - xp.sum(xp.exp(log_prob) * log_prob, axis=(-2, -1))
        return total

    def fisher_product(self, params: Array, tangent: Array) -> Array:
        """M·t = p∘t − p(p·t), factor by factor."""
        xp = params.__array_namespace__()
        products = []
        pairs = zip(self._blocks(params), self._blocks(tangent), strict=True)
        for (block, _), (direction, _) in pairs:
            prob = xp.exp(_log_softmax(block))
            centered = direction - xp.sum(prob * direction, axis=-1, keepdims=True)
            products.append(xp.reshape(prob * centered, (*params.shape[:-1], -1)))
        return xp.concatenate(products, axis=-1)

    def _blocks(self, logits: Array) -> Iterator[tuple[Array, slice]]:
        """Neighbouring factors of one size as (..., factors, size), with their indices."""
        xp = logits.__array_namespace__()
        start = factor = 0
        for size, run in itertools.groupby(self.sizes):
            count = len(list(run))
            block = logits[..., start : start + count * size]
            block = xp.reshape(block, (*logits.shape[:-1], count, size))
            yield block, slice(factor, factor + count)
            start, factor = start + count * size, factor + count


def _inverse_std(log_std: Array) -> Array:
    """1/std, kept finite and positive in float32 however extreme the log std."""
    xp = log_std.__array_namespace__()
    return xp.exp(-xp.clip(log_std, -80.0, 80.0))


def _exp_excess(x: Array) -> Array:
    """eˣ − 1 − x, by its series near 0, where the difference would lose all digits."""
    xp = x.__array_namespace__()
    near = xp.abs(x) < 0.05
    y = xp.where(near, x, 0.0)
    series = 0.5 * y * y * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6 * (1 + y / 7)))))
    return xp.where(near, series, xp.expm1(x) - x)


def _log_softmax(logits: Array) -> Array:
    xp = logits.__array_namespace__()
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
