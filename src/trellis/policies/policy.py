"""π_θ(a|s): a network and a distribution over one flat parameter vector θ (App. D).

θ is the weights of the network, one after the other, then the parameters that do not depend on the
state (the log stds of a Gaussian). Everything else, the step, CEM and CMA, checkpoints and the
wire, sees that vector alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.distributions import Distribution
from trellis.policies.networks import Network, num_weights, unflatten


@dataclass(frozen=True)
class Policy:
    """A stochastic policy; a hashable description without parameters of its own."""

    network: Network
    distribution: Distribution
    initial_log_std: float = 0.0
    """Where the free parameters of the distribution start."""

    def __post_init__(self):
        if self.network.num_outputs != self.distribution.num_outputs:
            raise ValueError(
                f"the network gives {self.network.num_outputs} outputs,"
                f" the distribution needs {self.distribution.num_outputs}"
            )

    @property
    def num_params(self) -> int:
        """The length of θ."""
        return num_weights(self.network) + self.distribution.num_free

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """A first θ, float32."""
        free = np.full(self.distribution.num_free, self.initial_log_std)
        parts = [weight.ravel() for weight in self.network.init(rng)]
        return np.concatenate([*parts, free]).astype(np.float32)

    def distribution_params(
        self, theta: Array, observation: Any, carry: Any = ()
    ) -> tuple[Any, Any]:
        """μ_θ(s), and the memory to hand to the next step (empty: no policy here has one)."""
        return self.params_of(theta, self.outputs(theta, observation)), carry

    def outputs(self, theta: Array, observation: Any) -> Array:
        """What the network says of each observation: all of μ that depends on the state."""
        weights, _ = self.unflatten(theta)
        return self.network.apply(weights, observation)

    def params_of(self, theta: Array, outputs: Array) -> Any:
        """μ from the network's outputs and the free parameters in θ."""
        _, free = self.unflatten(theta)
        return self.distribution.params(outputs, free)

    def unflatten(self, theta: Array) -> tuple[list[Array], Array]:
        """θ as the network's weights and the distribution's free parameters."""
        if theta.shape != (self.num_params,):
            raise ValueError(f"θ must have shape ({self.num_params},), got {theta.shape}")
        return unflatten(self.network, theta)
