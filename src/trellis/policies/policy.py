"""Defines the policy π_θ(a|s): a network and a distribution over one flat vector θ (App. D).

θ holds the weights of the network in order, then the parameters that do not depend on the state
(the log stds of a Gaussian). The step, CEM, CMA, checkpoints and messages between machines see
nothing but this vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from trellis.arrays import Array
from trellis.policies.distributions import Distribution
from trellis.policies.networks import Network, Recurrent, num_weights, unflatten
from trellis.policies.sequences import Sequences


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

    @property
    def carry_size(self) -> int:
        """Number of values that a policy with memory carries from step to step; otherwise 0."""
        return getattr(self.network, "carry_size", 0)

    def initial_carry(self, count: int) -> np.ndarray | None:
        """Return the carry of `count` episodes that start; None for feed-forward policies."""
        return np.zeros((count, self.carry_size), np.float32) if self.carry_size else None

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
            observation: A batch of observations. For a policy with memory, `Sequences` with their
                own carry are allowed, too.
            carry: Hidden state of a policy with memory, which starts with `initial_carry`; empty
                for feed-forward policies.
        """
        if self.carry_size and not isinstance(observation, Sequences):
            weights, _ = self.unflatten(theta)
            outputs, carry = self.advance(weights, observation, carry)
        else:
            outputs = self.outputs(theta, observation)
        return self.params_of(theta, outputs), carry

    def advance(self, weights: Sequence[Array], observation: Any, carry: Any) -> tuple[Array, Any]:
        """Return the network's outputs for a batch of observations, and the next carry.

        Args:
            weights: Weights of the network, the first result of `unflatten`.
            observation: A batch of observations.
            carry: Carry before the step; None for feed-forward policies.
        """
        if not self.carry_size:
            return self.network.apply(weights, observation), carry
        if carry is None or not len(carry):
            raise ValueError(
                "a policy with memory needs a carry: start an episode with initial_carry, and pass"
                " on the carry that each step returns"
            )
        return cast(Recurrent, self.network).step(weights, observation, carry)

    def outputs(self, theta: Array, observation: Any) -> Array:
        """Return the network's outputs: the part of μ that depends on the state.

        A policy with memory takes `Sequences` here.
        """
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
