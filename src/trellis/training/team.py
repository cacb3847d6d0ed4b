"""Defines teams, which hold the shards of a run in this process or elsewhere.

The trainer calls a `Team`. `LocalTeam` calls its shards directly; `RayTeam` in `cluster/` sends
messages to workers on other machines. Both give the same bits. A single shard takes its step as one
compiled program; several shards answer the step's questions one by one.
"""

import abc
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from trellis.blas import one_blas_thread
from trellis.config import TrainConfig
from trellis.envs.batch import Snapshot
from trellis.estimation.advantages import CriticFit, Estimated
from trellis.estimation.baseline import ValueMoments
from trellis.estimation.critic import CriticState
from trellis.moments import Moments
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.objective import DistributedObjective, Objective
from trellis.optimization.step import AS_CONFIGURED, StepInfo, StepInputs, take_step
from trellis.policies.policy import Policy
from trellis.training.build import MakeEnv
from trellis.training.reduction import Span, reduce_tree
from trellis.training.shard import Collected, Finished, Shard, ShardState

Answer = TypeVar("Answer")
Part = TypeVar("Part")


class Team(abc.ABC):
    """Interface between the trainer and the shards of a run.

    Args:
        config: Settings of the whole run.
    """

    @abc.abstractmethod
    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect the samples of an iteration with π_θ and return their statistics."""

    @abc.abstractmethod
    def estimate(
        self,
        critic: CriticState,
        reward_scale: float,
        gain: float = 0.0,
        learning_rate: float | None = None,
        *,
        fit_later: bool = False,
    ) -> Estimated:
        """Compute advantages or Q-values with the present critic, then fit the critic.

        With `fit_later`, the fit may run beside the step; `critic_fit` waits for it.
        """

    @abc.abstractmethod
    def prepare_step(self, values: ValueMoments) -> None:
        """Compute the gradient of every shard, given the moments of all shards' values."""

    @abc.abstractmethod
    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Apply a function to the objective of every shard and merge the answers."""

    @abc.abstractmethod
    def finish(self, theta: np.ndarray, observation_moments: Moments) -> Finished:
        """End the iteration with the new θ and observation statistics."""

    @abc.abstractmethod
    def restore(self, states: Sequence[ShardState]) -> None:
        """Restore every shard from its state."""

    @abc.abstractmethod
    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None if one is not serializable."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close environments and release workers."""

    def __init__(self, config: TrainConfig):
        self._config = config

    def critic_fit(self, estimated: Estimated) -> CriticFit | None:
        """Return the critic fit that belongs to the result of `estimate`; None without a critic."""
        return estimated.critic_fit

    def step(
        self, theta: np.ndarray, values: ValueMoments, inputs: StepInputs = AS_CONFIGURED
    ) -> tuple[np.ndarray, StepInfo]:
        """Take the step from θ with the objectives of all shards.

        It runs the function that a single shard compiles, with plain Python loops.
        """
        self.prepare_step(values)
        objective = DistributedObjective(self.ask)
        new, info = take_step(
            objective, theta, self._config.step, while_loop=python_while, inputs=inputs
        )
        return np.asarray(new), info


MakeTeam = Callable[[TrainConfig, MakeEnv | None, Policy], Team]
"""Function that creates a team from the settings, `make_env` and the policy."""


class LocalTeam(Team):
    """Shards in this process: all of a run, or those of one node of the reduction tree.

    Args:
        config: Settings of the whole run.
        make_env: Function that creates batches; by default from `config.env`.
        policy: Custom policy; by default the one that the settings describe.
        span: Range of shards to hold; all by default.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        span: Span | None = None,
    ):
        super().__init__(config)
        self._span = span or (0, config.sampling.shards)
        self.shards = [Shard(config, index, make_env, policy) for index in range(*self._span)]
        self._objectives: list[Objective] = []
        self._is_single = config.sampling.shards == 1

    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect the samples of an iteration with π_θ and return their statistics."""
        return self._merge(self.shards, lambda s: s.collect(theta, observation_moments, iteration))

    def estimate(
        self,
        critic: CriticState,
        reward_scale: float,
        gain: float = 0.0,
        learning_rate: float | None = None,
        *,
        fit_later: bool = False,
    ) -> Estimated:
        """Compute advantages or Q-values with the present critic, then fit the critic.

        With `fit_later`, a single shard fits its critic beside the step.
        """
        given, later = (critic, reward_scale, gain, learning_rate), fit_later and self._is_single
        return self._merge(self.shards, lambda shard: shard.estimate(*given, fit_later=later))

    def critic_fit(self, estimated: Estimated) -> CriticFit | None:
        """Return the critic fit that belongs to the result of `estimate`; None without a critic."""
        return self.shards[0].critic_fit(estimated) if self._is_single else estimated.critic_fit

    def step(
        self, theta: np.ndarray, values: ValueMoments, inputs: StepInputs = AS_CONFIGURED
    ) -> tuple[np.ndarray, StepInfo]:
        """Take the step from θ; a single shard takes it as one compiled program."""
        if self._is_single:
            return self.shards[0].step(values, inputs)
        return super().step(theta, values, inputs)

    def prepare_step(self, values: ValueMoments) -> None:
        """Compute the gradient of every shard, given the moments of all shards' values."""
        with self._threads():
            self._objectives = [shard.objective(values) for shard in self.shards]

    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Apply a function to the objective of every shard and merge the answers."""
        return self._merge(self._objectives, lambda part: jax.tree.map(np.asarray, question(part)))

    def finish(
        self, theta: np.ndarray, observation_moments: Moments, *, with_snapshots: bool = False
    ) -> Finished:
        """End the iteration with the new θ and observation statistics."""
        return self._merge(
            self.shards, lambda shard: shard.finish(theta, observation_moments, with_snapshots)
        )

    def restore(self, states: Sequence[ShardState]) -> None:
        """Restore the shards of this team; `states` are those of all shards of the run."""
        for shard, state in zip(self.shards, states[slice(*self._span)], strict=True):
            shard.restore(state)

    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None if one is not serializable."""
        return all_or_none([shard.snapshot() for shard in self.shards])

    def close(self) -> None:
        """Close the environments."""
        for shard in self.shards:
            shard.close()

    def _merge(self, parts: Sequence[Part], call: Callable[[Part], Answer]) -> Answer:
        """Call one part after the other and merge their answers along the tree."""
        first = self._span[0]
        with self._threads():
            answers = {(i, i + 1): call(part) for i, part in enumerate(parts, start=first)}
        return reduce_tree(self._span, answers)

    def _threads(self) -> contextlib.AbstractContextManager[Any]:
        """Limit BLAS to one thread if there are several shards, as on the workers of a cluster."""
        several = self._config.sampling.shards > 1
        return one_blas_thread() if several else contextlib.nullcontext()


def all_or_none(snapshots: Sequence[Snapshot | None]) -> list[Snapshot] | None:
    """Return the snapshots of all shards; None if any shard has none."""
    found = [snapshot for snapshot in snapshots if snapshot is not None]
    return found if len(found) == len(snapshots) else None
