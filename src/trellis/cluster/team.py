"""The teams of a cluster: the same training, its shards held by Ray workers."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from trellis.cluster.workers import WorkerGroup
from trellis.config import TrainConfig
from trellis.envs.batch import Snapshot
from trellis.estimation.advantages import Estimated
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
    """Holds the shards of a run on a cluster."""

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
        """Collect an iteration's samples with π_θ."""
        self.group.saved()
        return self.group.ask(
            "collect",
            lambda team: team.collect(theta, observation_moments, iteration),
            changes_shards=True,
        )

    def estimate(self, critic: CriticState, reward_scale: float) -> Estimated:
        """Estimate what the samples are worth, and fit the critic to them."""
        return self.group.ask(
            "estimate", lambda team: team.estimate(critic, reward_scale), changes_shards=True
        )

    def prepare_step(self, values: Moments) -> None:
        """Compute every shard's gradient; `values` are the moments of all advantages."""
        self.group.ask("prepare_step", lambda team: team.prepare_step(values), changes_shards=True)

    def ask(self, question: Callable[[Objective], Answer], /) -> Answer:
        """Put a question to the objectives of all shards and merge the answers."""
        # Questions are made by the methods of DistributedObjective, whose names say what they are.
        what = question.__qualname__.split(".")[1]
        return self.group.ask(what, lambda team: team.ask(question))

    def finish(self, theta: np.ndarray) -> Finished:
        """End the iteration, with snapshots from which a lost shard can be restored."""
        finished = self.group.ask("finish", lambda team: team.finish(theta, with_snapshots=True))
        self._states = finished.states
        self.group.saved()
        return finished

    def restore(self, states: Sequence[ShardState]) -> None:
        """Continue from these states, one for each shard."""
        self._states = states = list(states)
        self.group.saved()
        self.group.ask("restore", lambda team: team.restore(states))

    def snapshots(self) -> list[Snapshot] | None:
        """Return the snapshot of each shard's environments; None where they cannot be saved."""
        return all_or_none([state.snapshot for state in self._states])

    def close(self) -> None:
        """End the workers."""
        self.group.close()

    def _restore_lost(self) -> Callable[[LocalTeam], None]:
        """Return the call that restores lost shards; without a snapshot new episodes start."""
        states = self._states
        unsaved = any(state.path is not None and state.snapshot is None for state in states)
        if unsaved and not self._config.sampling.starts_new_episodes:
            logger.warning(
                "%s cannot be saved, so the lost shards start new episodes: training continues,"
                " but not bit for bit as it would have",
                self._config.env,
            )
            zeros = np.zeros_like(states[0].discounted_return)
            states = [ShardState(None, zeros) for _ in states]
        return lambda team: team.restore(states)


class RayPopulation:
    """Plays the members of a search on a cluster."""

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
        """End the workers."""
        self.group.close()
