"""Defines the policy π_θ(a|s): a network and a distribution over one flat vector θ (App. D).

θ holds the weights of the network in order, then the parameters that do not depend on the state
(the log stds of a Gaussian). The step, CEM, CMA, checkpoints and messages between machines see
nothing but this vector.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.distributions import Distribution
from trellis.policies.networks import Network, num_weights, unflatten


@dataclass(frozen=True)
class Policy:
    """Stochastic policy π_θ(a|s); a hashable description without parameters of its own.

    Example:
        >>> from trellis.policies import MLP, DiagGaussian
        >>> policy = Policy(MLP(inputs=3, hidden=(8,), num_outputs=1), DiagGaussian(1))
        >>> theta = policy.init(np.random.default_rng(0))
        >>> theta.shape
        (42,)
        >>> params, _ = policy.distribution_params(theta, np.zeros((5, 3), np.float32))
        >>> params.mean.shape
        (5, 1)
    """

    network: Network
    """Network that computes the parameters of the distribution which depend on the state."""
    distribution: Distribution
    """Distribution of the actions in a state."""
    initial_log_std: float = 0.0
    """Initial value of the distribution's parameters that do not depend on the state."""

    def __post_init__(self):
        if self.network.num_outputs != self.distribution.num_outputs:
            raise ValueError(
                f"the network has {self.network.num_outputs} outputs, but the distribution needs"
                f" {self.distribution.num_outputs}"
            )

    @property
    def num_params(self) -> int:
        """Length of θ."""
        return num_weights(self.network) + self.distribution.num_free

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Return initial parameters θ as a float32 vector."""
        free = np.full(self.distribution.num_free, self.initial_log_std)
        parts = [weight.ravel() for weight in self.network.init(rng)]
        return np.concatenate([*parts, free]).astype(np.float32)

    def distribution_params(
        self, theta: Array, observation: Any, carry: Any = ()
    ) -> tuple[Any, Any]:
        """Return the distribution parameters μ_θ(s), and the carry for the next step.

        Args:
            theta: Parameters of the policy.
            observation: A batch of observations.
            carry: Hidden state of a recurrent policy; empty for feed-forward policies.
        """
        return self.params_of(theta, self.outputs(theta, observation)), carry

    def outputs(self, theta: Array, observation: Any) -> Array:
        """Return the network's outputs: the part of μ that depends on the state."""
        weights, _ = self.unflatten(theta)
        return self.network.apply(weights, observation)

    def params_of(self, theta: Array, outputs: Array) -> Any:
        """Return μ from the network's outputs and the free parameters in θ."""
        _, free = self.unflatten(theta)
        return self.distribution.params(outputs, free)

    def unflatten(self, theta: Array) -> tuple[list[Array], Array]:
        """Return θ split into the network's weights and the distribution's free parameters."""
        if theta.shape != (self.num_params,):
            raise ValueError(f"θ must have shape ({self.num_params},), got {theta.shape}")
        return unflatten(self.network, theta)
