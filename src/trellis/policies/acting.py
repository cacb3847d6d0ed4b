"""Defines `BatchActor`, which acts in a batch of environments and keeps what it remembers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.policies.policy import Policy
from trellis.spaces import Observation

HAS_MEMORY = (
    "this policy has memory: write `act = policy.episode()` at the start of an episode and then"
    " `act(observation)`, or pass carry=policy.initial_carry() and keep the carry that `act`"
    " returns"
)
"""Message for people who ask for an action without saying what came before."""


@dataclass
class BatchActor:
    """Function from batches of observations to actions for `BatchEnv.step`.

    That of a policy with memory remembers what it has seen since the episodes started.
    """

    policy: Policy
    """Network and distribution."""
    theta: np.ndarray
    """Parameters of the policy."""
    features: Callable[[Observation], Any]
    """Function from observations to the network's inputs."""
    rng: np.random.Generator
    """Source of the noise of sampled actions."""
    stochastic: bool
    """Whether to sample actions instead of taking the most probable ones."""
    carry: np.ndarray | None = None
    """What a policy with memory carries; None where episodes start."""

    def __call__(self, observation: Observation) -> np.ndarray:
        """Return the actions, one per row of the observations."""
        inputs, distribution = self.features(observation), self.policy.distribution
        if self.carry is None:
            self.carry = self.policy.initial_carry(len(inputs))
        params, self.carry = self.policy.distribution_params(self.theta, inputs, self.carry)
        if not self.stochastic:
            return distribution.mode(params)
        return distribution.sample(params, distribution.noise(self.rng, (len(inputs),)))

    def start_episodes(self) -> None:
        """Forget everything, because new episodes start in all environments."""
        self.carry = None


def require_carry(carry: np.ndarray, wanted: tuple[int, ...]) -> None:
    """Raise a ValueError if a carry does not have the shape that `initial_carry` gives it."""
    if carry.shape != wanted:
        raise ValueError(
            f"carry must have the shape {wanted}, got {carry.shape}: start with"
            " policy.initial_carry(), or initial_carry(n) for a batch of n, and pass on what `act`"
            " returns"
        )
