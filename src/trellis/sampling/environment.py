"""Defines the interfaces that samplers require of a batch of environments (Sec. 5).

These protocols are structural, so sampling does not import environments. `trellis.envs.BatchEnv`
satisfies `Steppable` and, if it is restorable, `Branching`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.spaces import Observation

Snapshot = Mapping[str, np.ndarray]
"""State of some environments: named arrays whose first axis is the environment."""
Ids = Int[np.ndarray, " env"]
"""Indices of environments in their batch."""
Actions = Shaped[np.ndarray, "env ..."]
"""One action per environment, in the form that the policy samples."""
Active = Bool[np.ndarray, " env"]
"""Whether each environment takes part in a step."""


class Transition(Protocol):
    """Result of a step of a batch: arrays whose first axis is the environment."""

    @property
    def observation(self) -> Observation:
        """Observations after the step."""
        ...

    @property
    def reward(self) -> Float[np.ndarray, " env"] | None:
        """Rewards of the step; None if they are computed later."""
        ...

    @property
    def terminated(self) -> Bool[np.ndarray, " env"]:
        """Whether the step ended the episode in a terminal state."""
        ...

    @property
    def truncated(self) -> Bool[np.ndarray, " env"]:
        """Whether the step ended the episode early, for example at a time limit."""
        ...


class StepResult(Transition, Protocol):
    """Result of a step with its rewards."""

    @property
    def reward(self) -> Float[np.ndarray, " env"]:
        """Rewards of the step."""
        ...


class Steppable(Protocol):
    """Interface that single path requires: environments that can be reset and stepped."""

    num_envs: int
    """Number of environments in the batch."""

    def reset(self, ids: Ids, seeds: Int[np.ndarray, " env"], /) -> Observation:
        """Start new episodes in environments `ids` and return their first observations."""
        ...

    def step(self, actions: Actions, /) -> StepResult:
        """Advance all environments by one step."""
        ...


@runtime_checkable
class Lanes(Protocol):
    """Environments in groups (lanes): one lane steps while the policy acts in another."""

    lanes: Sequence[slice]
    """Environments of each lane; together they are all environments, in order."""

    def send(self, lane: int, actions: Actions, /) -> None:
        """Start a step of all environments of a lane."""
        ...

    def receive(self, lane: int, /) -> StepResult:
        """Return the result of the step that `send` started."""
        ...


class Branching(Steppable, Protocol):
    """Interface that vine requires: environments that can be restored and reseeded."""

    most_rows: int | None
    """Largest useful number of environments in a batch of rollouts; None for the default."""

    def snapshot(self, ids: Ids, /) -> Snapshot:
        """Return everything that the future of environments `ids` depends on."""
        ...

    def restore(self, ids: Ids, snapshot: Snapshot, /) -> Observation:
        """Restore a snapshot in environments `ids` and return its observations."""
        ...

    def reseed(self, ids: Ids, seeds: Int[np.ndarray, " env"], /) -> None:
        """Give environments `ids` new random streams without changing their states."""
        ...

    def step(self, actions: Actions, active: Active | None = None, /) -> StepResult:
        """Advance the active environments by one step; all by default."""
        ...

    def close(self) -> None:
        """Release processes and memory."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """Environments in groups (lanes) that are batches of their own, for a thread each."""

    num_envs: int
    """Number of environments in the batch."""
    lane_threads: int
    """Number of threads that lanes may use."""

    @property
    def divided(self) -> Sequence[tuple[slice, Branching]]:
        """Environments of each lane, and a batch of them, which has states of its own.

        The lanes do not depend on the number of threads. One lane is the batch itself.
        """
        ...

    def snapshot(self, ids: Ids, /) -> Snapshot:
        """Return everything that the future of environments `ids` depends on."""
        ...

    def restore(self, ids: Ids, snapshot: Snapshot, /) -> Observation:
        """Restore a snapshot in environments `ids` and return its observations."""
        ...


class SegmentSteps(Protocol):
    """Steps of a batch whose rewards are computed together at the end."""

    def step(self, actions: Actions, /) -> Transition:
        """Advance all environments by one step.

        Its arrays may change when an episode starts, so the caller copies them.
        """
        ...

    def rewards(self, actions: Actions, /) -> Float[np.ndarray, "time env"]:
        """Return the rewards of all steps, given their actions (time, env, ...)."""
        ...


@runtime_checkable
class Segmented(Protocol):
    """Environments whose rewards may wait, so that less is done between two steps."""

    def segment(self, steps: int, /) -> SegmentSteps | None:
        """Return an object that makes the next `steps` steps; None if rewards cannot wait."""
        ...


class RowFunctions(Protocol):
    """Pure functions of everything that a batch depends on, its rows; JAX can compile them."""

    def reset(self, rows: Any, chosen: Any, key: Any, /) -> Any:
        """Start new episodes with these keys in the rows that are chosen."""
        ...

    def step(self, rows: Any, action: Any, /) -> tuple[Any, Any]:
        """Return the rows after a step, and (reward, terminated, truncated)."""
        ...

    def step_active(self, rows: Any, action: Any, active: Any, /) -> tuple[Any, Any]:
        """Advance the active rows by one step; the others keep their state, with reward 0."""
        ...

    def reseed(self, rows: Any, key: Any, /) -> Any:
        """Give all rows new keys without changing their states."""
        ...


@runtime_checkable
class Compilable(Protocol):
    """Interface that the compiled sampler requires: environments that are pure functions."""

    num_envs: int
    """Number of environments in the batch."""
    functions: RowFunctions
    """Functions that reset and step the rows."""

    @property
    def masked_factors(self) -> tuple[int, ...]:
        """Sizes of the factors of an action; empty if observations have no action masks."""
        ...

    @property
    def rows(self) -> Any:
        """Everything that the future of the batch depends on, with `observation` and `elapsed`."""
        ...

    @rows.setter
    def rows(self, rows: Any, /) -> None: ...

    def reset(self, ids: Ids, seeds: Int[np.ndarray, " env"], /) -> Observation:
        """Start new episodes in environments `ids` and return their first observations."""
        ...

    def map_actions(self, actions: Any, /) -> Any:
        """Return the environment's actions for actions that a policy sampled."""
        ...

    def check_finite(self, what: str, values: Any, /) -> None:
        """Raise an error for the first row of `values` that is not finite."""
        ...

    def check_masks(self, masks: np.ndarray, ids: Ids | None = None, /) -> None:
        """Raise an error for the first environment whose mask allows no action."""
        ...
