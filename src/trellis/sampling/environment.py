"""What the samplers require of a batch of environments.

These protocols are structural, so that sampling does not import environments. `BatchEnv` of
`trellis.envs` satisfies `Steppable` and, where it is restorable, `Branching`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.spaces import Observation

Snapshot = Mapping[str, np.ndarray]
"""State of some environments, by name: arrays whose first axis is the environment."""
Ids = Int[np.ndarray, " env"]
"""Indices of environments in their batch."""
Actions = Shaped[np.ndarray, "env ..."]
"""One action per environment, as the policy sampled it."""
Active = Bool[np.ndarray, " env"]
"""Whether each environment takes part in a step."""


class StepResult(Protocol):
    """What a step of a batch returns: arrays whose first axis is the environment."""

    @property
    def observation(self) -> Observation: ...
    @property
    def reward(self) -> Float[np.ndarray, " env"]: ...
    @property
    def terminated(self) -> Bool[np.ndarray, " env"]: ...
    @property
    def truncated(self) -> Bool[np.ndarray, " env"]: ...


class Steppable(Protocol):
    """What single path requires: environments that can be reset and stepped."""

    num_envs: int

    def reset(self, ids: Ids, seeds: Int[np.ndarray, " env"], /) -> Observation: ...
    def step(self, actions: Actions, /) -> StepResult: ...


@runtime_checkable
class Lanes(Protocol):
    """Environments in groups that step in turns, each while the policy acts in another."""

    lanes: Sequence[slice]
    """The environments of each lane; together all environments, in order."""

    def send(self, lane: int, actions: Actions, /) -> None: ...
    def receive(self, lane: int, /) -> StepResult: ...


class Branching(Steppable, Protocol):
    """What vine requires: environments that can be restored from snapshots and reseeded."""

    most_rows: int | None
    """Largest useful number of environments in a batch of rollouts; None for the default."""

    def snapshot(self, ids: Ids, /) -> Snapshot: ...
    def restore(self, ids: Ids, snapshot: Snapshot, /) -> Observation: ...
    def reseed(self, ids: Ids, seeds: Int[np.ndarray, " env"], /) -> None: ...
    def step(self, actions: Actions, active: Active | None = None, /) -> StepResult: ...
    def close(self) -> None: ...
