"""Defines two variants of the Gaussian: a std that depends on the state, and tanh-squashed actions.

`StateGaussian` has a log std for every state. Its formulas are those of `DiagGaussian`; only where
the log std comes from differs.

`SquashedGaussian` samples u from a Gaussian and acts with a = tanh u, so actions stay inside their
bounds without clipping. tanh is invertible, so the KL divergence and the Fisher matrix are those of
u. The density has the Jacobian of tanh:

    log π(a|s) = log N(u) − Σ log(1 − a²)        u = artanh a
"""

import math
from dataclasses import dataclass

import numpy as np

from trellis.arrays import Array
from trellis.policies.distributions import DiagGaussian, GaussianParams

LARGEST_ACTION = 1.0 - 1e-6
"""Largest absolute value of a squashed action; beyond it, single precision cannot invert tanh."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
"""Points and weights of a Gauss–Hermite quadrature over a standard normal variable."""


@dataclass(frozen=True)
class StateGaussian(DiagGaussian):
    """Gaussian with independent dimensions; the network computes means and log stds.

    Example:
        >>> distribution = StateGaussian(1, initial_log_std=-1.0)
        >>> params = distribution.params(np.array([[0.5, 0.25]]), np.zeros(0))
        >>> params.mean.tolist(), params.log_std.tolist()
        ([[0.5]], [[-0.75]])
    """

    initial_log_std: float = 0.0
    """Number that is added to the network's outputs for the log stds, which start near 0."""

    @property
    def num_outputs(self) -> int:
        """Number of network outputs: a mean and a log std per dimension."""
        return 2 * self.size

    @property
    def num_free(self) -> int:
        """Number of free parameters: none, because all depend on the state."""
        return 0

    def params(self, outputs: Array, free: Array) -> GaussianParams:
        """Return μ: means, and log stds of every state."""
        del free
        log_std = outputs[..., self.size :] + self.initial_log_std
        return GaussianParams(outputs[..., : self.size], log_std)


@dataclass(frozen=True)
class SquashedGaussian:
    """Gaussian whose samples are squashed to (−1, 1) by tanh.

    Example:
        >>> distribution = SquashedGaussian(DiagGaussian(1))
        >>> params = distribution.params(np.array([[0.0]]), np.zeros(1))
        >>> distribution.sample(params, np.array([[100.0]])).tolist()
        [[0.999999]]
    """

    base: DiagGaussian
    """Distribution before squashing."""

    @property
    def size(self) -> int:
        """Number of dimensions of an action."""
        return self.base.size

    @property
    def num_outputs(self) -> int:
        """Number of network outputs, those of the Gaussian."""
        return self.base.num_outputs

    @property
    def num_free(self) -> int:
        """Number of free parameters, those of the Gaussian."""
        return self.base.num_free

    def params(self, outputs: Array, free: Array) -> GaussianParams:
        """Return μ of the Gaussian."""
        return self.base.params(outputs, free)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """Return standard normal noise, (*batch, size)."""
        return self.base.noise(rng, batch)

    def sample(self, params: GaussianParams, noise: Array) -> Array:
        """Return tanh(mean + std·noise)."""
        return _squash(self.base.sample(params, noise))

    def mode(self, params: GaussianParams) -> Array:
        """Return tanh(mean), the median; the density may be larger near the bounds."""
        return _squash(params.mean)

    def log_prob(self, params: GaussianParams, action: Array) -> Array:
        """Return log π(a|s) of actions in (−1, 1), (...)."""
        xp = params.mean.__array_namespace__()
        action = xp.clip(action, -LARGEST_ACTION, LARGEST_ACTION)
        stretch = xp.sum(xp.log1p(-action * action), axis=-1)
        return self.base.log_prob(params, xp.arctanh(action)) - stretch

    def kl(self, *, old: GaussianParams, new: GaussianParams) -> Array:
        """Return KL(old ‖ new) of the Gaussians; squashing does not change it."""
        return self.base.kl(old=old, new=new)

    def entropy(self, params: GaussianParams) -> Array:
        """Return an estimate of the differential entropy, (...).

        It is the Gaussian's entropy plus E[Σ log(1 − tanh² u)], by a quadrature of 16 points per
        dimension.
        """
        xp = params.mean.__array_namespace__()
        std = xp.exp(params.log_std)
        u = params.mean[..., None] + std[..., None] * NODES.astype(np.float32)
        # log(1 − tanh² u), without overflow.
        bend = 2.0 * (math.log(2.0) - u - xp.logaddexp(-2.0 * u, xp.zeros_like(u)))
        weights = (WEIGHTS / WEIGHTS.sum()).astype(np.float32)
        expected = xp.sum(bend * weights, axis=-1)
        return self.base.entropy(params) + xp.sum(expected, axis=-1)

    def fisher_product(self, params: GaussianParams, tangent: GaussianParams) -> GaussianParams:
        """Return M·t of the Gaussian; squashing does not change it."""
        return self.base.fisher_product(params, tangent)


def _squash(u: Array) -> Array:
    xp = u.__array_namespace__()
    return xp.clip(xp.tanh(u), -LARGEST_ACTION, LARGEST_ACTION)
