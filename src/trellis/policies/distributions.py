"""Defines action distributions (App. D): sampling, log-probability, KL, entropy and the metric M.

The parameters μ of a distribution are mean and log standard deviation for `DiagGaussian`, and
logits for `Categoricals`. A network computes those that depend on the state. M = ∂²KL/∂μ² at equal
arguments is the Fisher matrix in these coordinates, the M in JᵀMJ (App. C.1); `fisher_product`
multiplies by it.

Sampling is a deterministic function of parameters and noise, so that rollouts can share their noise
(Sec. 5.2, common random numbers). All functions accept NumPy arrays, which samplers use, and JAX
arrays, which compiled code uses. Leading axes are batch axes. A part of μ that does not depend on
the state has no batch axes.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trellis.arrays import Array


class Distribution(Protocol):
    """Interface that the action distribution of a policy implements.

    A distribution must be hashable, because it is a static argument of compiled functions.
    """

    @property
    def num_outputs(self) -> int:
        """Number of network outputs that the distribution needs."""
        ...

    @property
    def num_free(self) -> int:
        """Number of parameters that do not depend on the state."""
        ...

    def params(self, outputs: Array, free: Array) -> Any:
        """Return μ from the network's outputs and the free parameters."""
        ...

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Return the noise that `sample` needs for a batch of actions of this shape."""
        ...

    def sample(self, params: Any, noise: Array) -> Array:
        """Return the actions that belong to the parameters and the noise."""
        ...

    def mode(self, params: Any) -> Array:
        """Return the most probable actions."""
        ...

    def log_prob(self, params: Any, action: Array) -> Array:
        """Return log π(a|s) of the actions."""
        ...

    def kl(self, *, old: Any, new: Any) -> Array:
        """Return KL(old ‖ new) for each state."""
        ...

    def entropy(self, params: Any) -> Array:
        """Return the entropy for each state."""
        ...

    def fisher_product(self, params: Any, tangent: Any) -> Any:
        """Return M·t for each state: the Fisher matrix in μ times a tangent of μ."""
        ...


class GaussianParams(NamedTuple):
    """Parameters μ of a diagonal Gaussian."""

    mean: Array
    """Means, (..., size)."""
    log_std: Array
    """Log standard deviations, (size,), the same for all states."""


@dataclass(frozen=True)
class DiagGaussian:
    """Gaussian with independent dimensions; the network computes its mean.

    The log standard deviations are parameters of their own, the same for all states.

    Example:
        >>> distribution = DiagGaussian(2)
        >>> params = distribution.params(np.zeros((1, 2)), np.zeros(2))
        >>> distribution.sample(params, np.array([[1.0, -0.5]])).tolist()
        [[1.0, -0.5]]
        >>> distribution.kl(old=params, new=params).tolist()
        [0.0]
    """

    size: int
    """Number of dimensions of an action."""

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: one mean per dimension."""
        return self.size

    @property
    def num_free(self) -> int:
        """Number of free parameters: one log standard deviation per dimension."""
        return self.size

    def params(self, outputs: Array, free: Array) -> GaussianParams:
        """Return μ: means from the network, and one log std per dimension for all states."""
        return GaussianParams(outputs, free)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Return standard normal noise, (*batch, size)."""
        return rng.standard_normal((*batch, self.size), dtype=np.float32)

    def sample(self, params: GaussianParams, noise: Array) -> Array:
        """Return mean + std·noise."""
        xp = params.mean.__array_namespace__()
        return params.mean + xp.exp(params.log_std) * noise

    def mode(self, params: GaussianParams) -> Array:
        """Return the mean, which is the most probable action."""
        return params.mean

    def log_prob(self, params: GaussianParams, action: Array) -> Array:
        """Return log π(a|s), (...)."""
        xp = params.mean.__array_namespace__()
        z = (action - params.mean) * _inverse_std(params.log_std)
        normalizer = xp.sum(params.log_std + 0.5 * math.log(2 * math.pi), axis=-1)
        return -0.5 * xp.sum(z * z, axis=-1) - normalizer

    def kl(self, *, old: GaussianParams, new: GaussianParams) -> Array:
        """Return KL(old ‖ new), (...): ½Σ[e²ᵈ − 1 − 2d + (Δmean/std_new)²].

        d is log(std_old/std_new). In this form the result is exactly 0 for equal arguments and
        loses no digits near them.
        """
        xp = old.mean.__array_namespace__()
        z = (old.mean - new.mean) * _inverse_std(new.log_std)
        widths = _exp_excess(2.0 * (old.log_std - new.log_std))
        return 0.5 * (xp.sum(z * z, axis=-1) + xp.sum(widths, axis=-1))

    def entropy(self, params: GaussianParams) -> Array:
        """Return the differential entropy, (...)."""
        xp = params.mean.__array_namespace__()
        total = xp.sum(params.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)
        return xp.broadcast_to(total, params.mean.shape[:-1])

    def fisher_product(self, params: GaussianParams, tangent: GaussianParams) -> GaussianParams:
        """Return M·t. M is diagonal: 1/std² for the means and 2 for the log stds."""
        inverse = _inverse_std(params.log_std)
        return GaussianParams(tangent.mean * inverse * inverse, 2.0 * tangent.log_std)


@dataclass(frozen=True)
class Categoricals:
    """Independent categorical factors; μ is the concatenation of their logits.

    One factor is a Discrete action, K factors are a MultiDiscrete action, and K factors of size 2
    are a MultiBinary action. Actions are integers (..., K), counted from 0.

    Example:
        >>> distribution = Categoricals((3, 2))
        >>> distribution.mode(np.array([[0.0, 2.0, 1.0, 5.0, 4.0]])).tolist()
        [[1, 0]]
    """

    sizes: tuple[int, ...]
    """Number of choices of each factor."""

    def __post_init__(self):
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be one or more positive numbers, got {self.sizes}")

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: one logit per choice of each factor."""
        return sum(self.sizes)

    @property
    def num_free(self) -> int:
        """Number of free parameters: none, because all logits depend on the state."""
        return 0

    def params(self, outputs: Array, free: Array) -> Array:
        """Return the network's outputs, which are the logits."""
        del free
        return outputs

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Return standard Gumbel noise, −log of a standard exponential, for each logit."""
        exponential = rng.standard_exponential((*batch, self.num_outputs), dtype=np.float32)
        return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))

    def sample(self, params: Array, noise: Array) -> Array:
        """Return the argmax of logits plus noise for each factor (the Gumbel-max trick)."""
        return self.mode(params + noise)

    def mode(self, params: Array) -> Array:
        """Return the most probable choice of each factor."""
        xp = params.__array_namespace__()
        choices = [xp.argmax(block, axis=-1) for block, _ in self._blocks(params)]
        return xp.concatenate(choices, axis=-1)

    def log_prob(self, params: Array, action: Array) -> Array:
        """Return log π(a|s), (...), summed over factors."""
        xp = params.__array_namespace__()
        total = 0.0
        for block, factors in self._blocks(params):
            # A comparison instead of a gather, because its derivative is cheap.
            chosen = action[..., factors, None] == xp.arange(block.shape[-1])
            picked = xp.where(chosen, _log_softmax(block), 0.0)
            total = total + xp.sum(picked, axis=(-2, -1))
        return total

    def kl(self, *, old: Array, new: Array) -> Array:
        """Return KL(old ‖ new), (...): Σ p_old·(eᵈ − 1 − d) with d = log p_new − log p_old.

        This equals the usual Σ p_old·(−d), because both distributions sum to 1. Every term is
        nonnegative, so the result is exactly 0 for equal arguments and loses no digits near them.
        """
        xp = old.__array_namespace__()
        total = 0.0
        pairs = zip(self._blocks(old), self._blocks(new), strict=True)
        for (old_block, _), (new_block, _) in pairs:
            old_log, new_log = _log_softmax(old_block), _log_softmax(new_block)
            old_prob, difference = xp.exp(old_log), new_log - old_log
            near = xp.abs(difference) < 1.0
            close_by = old_prob * _exp_excess(xp.where(near, difference, 0.0))
            # Far apart, eᵈ may overflow where p_old is tiny, so p_new replaces p_old·eᵈ.
            far_away = xp.exp(new_log) - old_prob - old_prob * difference
            total = total + xp.sum(xp.where(near, close_by, far_away), axis=(-2, -1))
        return total

    def entropy(self, params: Array) -> Array:
        """Return the entropy, (...), summed over factors."""
        xp = params.__array_namespace__()
        total = 0.0
        for block, _ in self._blocks(params):
            log_prob = _log_softmax(block)
            total = total - xp.sum(xp.exp(log_prob) * log_prob, axis=(-2, -1))
        return total

    def fisher_product(self, params: Array, tangent: Array) -> Array:
        """Return M·t = p∘t − p(p·t) for each factor."""
        xp = params.__array_namespace__()
        products = []
        pairs = zip(self._blocks(params), self._blocks(tangent), strict=True)
        for (block, _), (direction, _) in pairs:
            prob = xp.exp(_log_softmax(block))
            centered = direction - xp.sum(prob * direction, axis=-1, keepdims=True)
            products.append(xp.reshape(prob * centered, (*params.shape[:-1], -1)))
        return xp.concatenate(products, axis=-1)

    def _blocks(self, logits: Array) -> Iterator[tuple[Array, slice]]:
        """Yield runs of factors of equal size as (..., factors, size), with their indices."""
        xp = logits.__array_namespace__()
        start = factor = 0
        for size, run in itertools.groupby(self.sizes):
            count = len(list(run))
            block = logits[..., start : start + count * size]
            block = xp.reshape(block, (*logits.shape[:-1], count, size))
            yield block, slice(factor, factor + count)
            start, factor = start + count * size, factor + count


def _inverse_std(log_std: Array) -> Array:
    """Return 1/std, finite and positive in float32 even if the log std is extreme."""
    xp = log_std.__array_namespace__()
    return xp.exp(-xp.clip(log_std, -80.0, 80.0))


def _exp_excess(x: Array) -> Array:
    """Return eˣ − 1 − x; near 0 by its series, because the difference would lose all digits."""
    xp = x.__array_namespace__()
    near = xp.abs(x) < 0.05
    y = xp.where(near, x, 0.0)
    series = 0.5 * y * y * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6 * (1 + y / 7)))))
    return xp.where(near, series, xp.expm1(x) - x)


def _log_softmax(logits: Array) -> Array:
    xp = logits.__array_namespace__()
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
