"""A team holds the shards of a run, in this process or elsewhere.

The trainer talks to a `Team`. `LocalTeam` calls its shards directly; `cluster/` has the team whose
shards live with workers on other machines. Both give the same bits. A single shard takes its step
as one compiled program; several answer the step's questions one by one.
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
from trellis.estimation.advantages import Estimated
from trellis.estimation.critic import CriticState
from trellis.moments import Moments
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.objective import DistributedObjective, LocalObjective, Objective
from trellis.optimization.step import StepInfo, take_step
from trellis.policies.policy import Policy
from trellis.training.build import MakeEnv
from trellis.training.reduction import Span, reduce_tree
from trellis.training.shard import Collected, Finished, Shard, ShardState

Answer = TypeVar("Answer")
Part = TypeVar("Part")


class Team(abc.ABC):
    """What the trainer asks of those who hold the shards."""

    @abc.abstractmethod
    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect an iteration's samples with π_θ."""

    @abc.abstractmethod
    def estimate(self, critic: CriticState, reward_scale: float) -> Estimated:
        """Estimate what the samples are worth, and fit the critic to them."""

    @abc.abstractmethod
    def prepare_step(self, values: Moments) -> None:
        """Compute every shard's gradient; `values` are the moments of all advantages."""

    @abc.abstractmethod
    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Put a question to the objectives of all shards and merge the answers."""

    @abc.abstractmethod
    def finish(self, theta: np.ndarray) -> Finished:
        """End the iteration with the new θ."""

    @abc.abstractmethod
    def restore(self, states: Sequence[ShardState]) -> None:
        """Continue from these states, one for each shard."""

    @abc.abstractmethod
    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None where they cannot be saved."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close environments and release workers."""

    def __init__(self, config: TrainConfig):
        self._config = config

    def step(self, theta: np.ndarray, values: Moments) -> tuple[np.ndarray, StepInfo]:
        """Take the step from θ by questions to all shards.

        This is the function that a single shard compiles, with plain loops.
        """
        self.prepare_step(values)
        objective = DistributedObjective(self.ask)
        new, info = take_step(objective, theta, self._config.step, while_loop=python_while)
        return np.asarray(new), info


MakeTeam = Callable[[TrainConfig, MakeEnv | None, Policy], Team]
"""A function that makes a team for a run, from settings, environments and policy."""


class LocalTeam(Team):
    """Shards in this process: all of a run, or those of one node of the reduction tree."""

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
        self._objectives: list[LocalObjective] = []

    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect an iteration's samples with π_θ."""
        return self._merge(self.shards, lambda s: s.collect(theta, observation_moments, iteration))

    def estimate(self, critic: CriticState, reward_scale: float) -> Estimated:
        """Estimate what the samples are worth, and fit the critic to them."""
        return self._merge(self.shards, lambda shard: shard.estimate(critic, reward_scale))

    def step(self, theta: np.ndarray, values: Moments) -> tuple[np.ndarray, StepInfo]:
        """Take the step from θ: as one compiled program, if there is a single shard."""
        if self._config.sampling.shards == 1:
            return self.shards[0].step(values)
        return super().step(theta, values)

    def prepare_step(self, values: Moments) -> None:
        """Compute every shard's gradient; `values` are the moments of all advantages."""
        with self._threads():
            self._objectives = [shard.objective(values) for shard in self.shards]

    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Put a question to the objectives of all shards and merge the answers."""
        return self._merge(self._objectives, lambda part: jax.tree.map(np.asarray, question(part)))

    def finish(self, theta: np.ndarray, *, with_snapshots: bool = False) -> Finished:
        """End the iteration with the new θ."""
        return self._merge(self.shards, lambda shard: shard.finish(theta, with_snapshots))

    def restore(self, states: Sequence[ShardState]) -> None:
        """Continue from these states, one for each shard of the run."""
        for shard, state in zip(self.shards, states[slice(*self._span)], strict=True):
            shard.restore(state)

    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None where they cannot be saved."""
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
        """Use one BLAS thread for several shards, as the workers of a cluster do."""
        several = self._config.sampling.shards > 1
        return one_blas_thread() if several else contextlib.nullcontext()


def all_or_none(snapshots: Sequence[Snapshot | None]) -> list[Snapshot] | None:
    """Return the snapshots of all shards; None if one of them has none."""
    found = [snapshot for snapshot in snapshots if snapshot is not None]
    return found if len(found) == len(snapshots) else None
