"""Implements the team and the population whose shards Ray workers hold."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from trellis.cluster.workers import WorkerGroup
from trellis.config import TrainConfig
from trellis.envs.batch import Snapshot
from trellis.estimation.advantages import Estimated
from trellis.estimation.baseline import ValueMoments
from trellis.estimation.critic import CriticState
from trellis.moments import Moments
from trellis.optimization.objective import Objective
from trellis.policies.policy import Policy
from trellis.search.population import Generation, LocalPopulation
from trellis.training.build import MakeEnv, Model
from trellis.training.shard import Collected, Finished, ShardState
from trellis.training.team import LocalTeam, Team, all_or_none

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class RayTeam(Team):
    """Team whose shards are on a cluster.

    Args:
        config: Settings of the whole run.
        make_env: Function that creates batches; by default from `config.env`.
        policy: Policy of the run.
        cluster: "local", "auto", or the address of the cluster's head.
        workers: Number of workers; by default one per `config.threads` CPUs of the cluster.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None,
        policy: Policy,
        *,
        cluster: str = "auto",
        workers: int | None = None,
    ):
        super().__init__(config)
        if config.step.method == "max-kl":
            raise ValueError(
                "method max-kl solves Eq. 11 in one process and cannot run on a cluster; use"
                " max-kl-step"
            )
        start = ShardState(None, np.zeros(config.sampling.part.paths))
        self._states = [start] * config.sampling.shards
        self.group: WorkerGroup[LocalTeam] = WorkerGroup(
            lambda part, span: LocalTeam(part, make_env, policy, span),
            config,
            cluster,
            workers,
            restore=self._restore_lost,
        )

    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect the samples of an iteration with π_θ and return their statistics."""
        self.group.saved()
        return self.group.ask(
            "collect",
            lambda team: team.collect(theta, observation_moments, iteration),
            changes_shards=True,
        )

    def estimate(
        self,
        critic: CriticState,
        reward_scale: float,
        gain: float = 0.0,
        learning_rate: float | None = None,
        *,
        fit_later: bool = False,
    ) -> Estimated:
        """Compute advantages or Q-values with the present critic, then fit the critic."""
        del fit_later  # Workers send the critic with the estimates.
        given = critic, reward_scale, gain, learning_rate
        return self.group.ask("estimate", lambda team: team.estimate(*given), changes_shards=True)

    def prepare_step(self, values: ValueMoments) -> None:
        """Compute the gradient of every shard, given the moments of all shards' values."""
        self.group.ask("prepare_step", lambda team: team.prepare_step(values), changes_shards=True)

    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Apply a function to the objective of every shard and merge the answers."""
        # Methods of `DistributedObjective` define the questions; their names go into messages.
        what = question.__qualname__.split(".")[1]
        return self.group.ask(what, lambda team: team.ask(question))

    def finish(self, theta: np.ndarray, observation_moments: Moments) -> Finished:
        """End the iteration and keep snapshots from which a lost shard can be restored."""
        finished = self.group.ask(
            "finish", lambda team: team.finish(theta, observation_moments, with_snapshots=True)
        )
        self._states = finished.states
        self.group.saved()
        return finished

    def restore(self, states: Sequence[ShardState]) -> None:
        """Restore every shard from its state."""
        self._states = states = list(states)
        self.group.saved()
        self.group.ask("restore", lambda team: team.restore(states))

    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None if one is not serializable."""
        return all_or_none([state.snapshot for state in self._states])

    def close(self) -> None:
        """Stop the workers."""
        self.group.close()

    def _restore_lost(self) -> Callable[[LocalTeam], None]:
        """Return the function that restores lost shards; without snapshots, new episodes start."""
        states = self._states
        unsaved = any(state.path is not None and state.snapshot is None for state in states)
        if unsaved and not self._config.sampling.starts_new_episodes:
            logger.warning(
                "%s has no snapshots: the lost shards start new episodes, so the run does not"
                " continue bit for bit.",
                self._config.env,
            )
            zeros = np.zeros_like(states[0].discounted_return)
            states = [ShardState(None, zeros) for _ in states]
        return lambda team: team.restore(states)


class RayPopulation:
    """Population whose members are played on a cluster.

    Args:
        config: Settings of the whole run.
        make_env: Function that creates batches; by default from `config.env`.
        model: Policy and encoder of observations.
        length: Number of steps after which an episode is cut.
        cluster: "local", "auto", or the address of the cluster's head.
        workers: Number of workers; by default one per `config.threads` CPUs of the cluster.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None,
        model: Model,
        length: int,
        *,
        cluster: str = "auto",
        workers: int | None = None,
    ):
        self.group: WorkerGroup[LocalPopulation] = WorkerGroup(
            lambda part, span: LocalPopulation(part, make_env, model, length, span),
            config,
            cluster,
            workers,
        )

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of a generation, a row of `thetas` for each member."""
        return self.group.ask("play", lambda held: held.play(thetas, moments, iteration))

    def close(self) -> None:
        """Stop the workers."""
        self.group.close()
