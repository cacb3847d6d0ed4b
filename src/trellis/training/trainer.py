"""Implements the loop of TRPO (Sec. 6): sample, estimate, step.

`Trainer.iterate(state)` returns the next state and the metrics. It is a pure function of the state,
except for the environments, which the shards of a team hold. `runs/run.py` adds logging,
evaluations, checkpoints and progress.
"""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from trellis.config import TrainConfig
from trellis.envs.batch import Snapshot
from trellis.estimation.advantages import surrogate_scale
from trellis.estimation.compensation import compensated, compensated_critic
from trellis.estimation.estimates import Estimated
from trellis.estimation.normalization import update_reward_scale
from trellis.moments import Moments
from trellis.optimization.rules import rule_of
from trellis.optimization.step import StepInfo
from trellis.policies.policy import Policy
from trellis.policies.saved_layout import describe
from trellis.rng import Purpose, stream
from trellis.sampling.samples import PathState
from trellis.training.base import TrainerBase
from trellis.training.build import MakeEnv, build_model, env_maker, why_inexact
from trellis.training.metrics import iteration_metrics
from trellis.training.schedules import critic_learning_rate, step_inputs
from trellis.training.shard import Collected, Finished, ShardState
from trellis.training.state import TrainState, from_arrays, to_arrays, with_prefix
from trellis.training.team import LocalTeam, MakeTeam, Team

logger = logging.getLogger(__name__)


class Results(NamedTuple):
    """Results of the parts of an iteration."""

    collected: Collected
    """Statistics of the samples."""
    reward_scale: float
    """Number that rewards are divided by."""
    return_moments: Moments
    """Running statistics of discounted returns after the iteration."""
    estimated: Estimated
    """Statistics of the values, and the critic fit."""
    theta: np.ndarray
    """New parameters of the policy."""
    info: StepInfo
    """Description of the step."""
    observation_moments: Moments
    """Running statistics of observations after the iteration."""
    finished: Finished
    """Entropy, and the states of the shards."""
    clock: list[float]
    """Times before sampling, after it, after estimation and after the step."""


class Trainer(TrainerBase[TrainState]):
    """Trains a policy with TRPO, or with another update rule, one iteration at a time.

    Args:
        config: Settings of the run.
        make_env: Function that creates batches of the environment; by default from `config.env`.
        policy: Custom policy; by default the one that the settings describe.
        make_team: Function that creates the team of shards; by default in this process.
        team: Team that exists already; by default a new one.

    Example:
        >>> from trellis import Trainer, presets
        >>> trainer = Trainer(presets.resolve("CartPole-v1"))
        >>> state, metrics = trainer.iterate(trainer.start())
        >>> metrics["status"]
        'accepted'
        >>> trainer.close()
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        *,
        make_team: MakeTeam | None = None,
        team: LocalTeam | None = None,
    ):
        rule_of(config.step)  # Raises for cem and cma, which `SearchTrainer` trains.
        self.team: Team
        if make_team is None:
            self.team = local = team or LocalTeam(config, make_env, policy)
            model, env = local.shards[0].model, local.shards[0].env
        else:
            env = (make_env or env_maker(config))(1)
            with contextlib.closing(env):
                model = build_model(config, env, policy)
            self.team = make_team(config, make_env, model.policy)
        try:
            super().__init__(config, model, make_env)
            step_inputs(config, model.policy, 0)  # Raises if a bound does not fit the policy.
            new_episodes = config.sampling.starts_new_episodes
            self.inexact = why_inexact(env, starts_new_episodes=new_episodes)
        except BaseException:
            if team is None:  # Nobody else can close it, and workers of a cluster would stay.
                self.team.close()
            raise
        self._envs_at: tuple[PathState | None, np.ndarray] = (None, np.zeros(0))
        """Path and discounted returns from which the shards would continue."""
        self._interrupted = False
        """Whether the last iteration failed, which leaves the environments in unknown states."""

    def start(self) -> TrainState:
        """Return the state before the first iteration."""
        seed, critic = self.config.seed, self.model.critic
        return TrainState(
            theta=self.model.policy.init(stream(seed, Purpose.POLICY_INIT)),
            critic=critic.init(stream(seed, Purpose.CRITIC_INIT)) if critic else {},
            observation_moments=Moments.zeros(self.model.moments_shape),
            return_moments=Moments.zeros(),
            discounted_return=np.zeros(self.config.sampling.paths),
            path=None,
        )

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Run one iteration and return the next state and its metrics.

        New episodes start if the last iteration was interrupted by an exception, or if `state` is
        not the newest one.
        """
        state = self.begin(state)
        return self.end(state, self._run(state))

    def begin(self, state: TrainState) -> TrainState:
        """Move the environments to a state, and return the state that they are at."""
        state = self._move_envs_to(self._reachable(state))
        self._interrupted = True
        return state

    def _run(self, state: TrainState) -> "Results":
        """Sample, estimate and step."""
        clock = [time.perf_counter()]
        collected = self.team.collect(state.theta, state.observation_moments, state.iteration)
        clock.append(time.perf_counter())

        return_moments, scale = update_reward_scale(state.return_moments, collected.returns)
        gain = 0.0 if collected.gain is None else float(collected.gain.mean)
        rate = critic_learning_rate(self.config, state.steps)
        estimated = self.team.estimate(state.critic, scale, gain, rate, fit_later=True)
        clock.append(time.perf_counter())

        inputs = step_inputs(self.config, self.model.policy, state.steps)
        theta, info = self.team.step(state.theta, estimated.values, inputs)
        estimated = estimated._replace(critic_fit=self.team.critic_fit(estimated))
        clock.append(time.perf_counter())

        observed, old_moments = collected.observations, state.observation_moments
        moments = old_moments if observed is None else old_moments.merge(observed)
        finished = self.team.finish(theta, moments)
        return Results(
            collected, scale, return_moments, estimated, theta, info, moments, finished, clock
        )

    def end(self, state: TrainState, results: "Results") -> tuple[TrainState, dict[str, Any]]:
        """Return the state after an iteration, and its metrics."""
        collected, scale, return_moments, estimated, theta, info, moments, finished, clock = results
        path, discounted_return = self._envs_at = _join(finished.states)
        self._interrupted = False
        fit, old_moments = estimated.critic_fit, state.observation_moments
        critic = state.critic if fit is None else fit.critic
        if self.config.estimation.compensate_normalization:
            theta = compensated(self.policy.network, theta, old_moments, moments)
            critic = compensated_critic(self.model.critic, critic, old_moments, moments)
        state = dataclasses.replace(
            state,
            theta=theta,
            critic=critic,
            path=path,
            discounted_return=discounted_return,
            observation_moments=moments,
            return_moments=return_moments,
            iteration=state.iteration + 1,
            steps=state.steps + collected.steps,
        )
        unit = surrogate_scale(estimated.values, self.config.estimation.advantages, scale)
        return state, iteration_metrics(state, collected, estimated, info, finished, clock, unit)

    def to_checkpoint(self, state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state, with snapshots of environments, as named arrays and plain values."""
        state = self._reachable(state)
        arrays, values = to_arrays(state)
        snapshots = None if state.path is None else self.team.snapshots()
        if snapshots is not None:
            arrays |= {
                f"env/{name}": np.concatenate([np.asarray(part[name]) for part in snapshots])
                for name in snapshots[0]
            }
        return arrays, values | describe(self.model.spaces, self.model.policy)

    def from_checkpoint(
        self, arrays: dict[str, np.ndarray], values: Mapping[str, Any]
    ) -> TrainState:
        """Return the state of a checkpoint, and make the environments continue from it.

        Without a snapshot of the environments, new episodes start.
        """
        self._require_same_make(arrays, values)
        state = from_arrays(arrays, values)
        snapshot, consequence = with_prefix("env/", arrays), "training continues"
        if snapshot:
            self._move_envs_to(state, snapshot)
        elif state.path is not None:
            if not self.config.sampling.starts_new_episodes:
                consequence = "new episodes start, and training continues"
                if not self.inexact:
                    logger.warning(
                        "%s has no snapshot in this checkpoint: new episodes start, so the run does"
                        " not continue bit for bit.",
                        self.config.env,
                    )
            state = self._with_new_episodes(state)
        self._warn_if_inexact(consequence)
        self._interrupted = False
        return state

    def watch(self, on_steps: Callable[[str, int], None]) -> None:
        """Report steps of slow environments while they are made, for a progress display."""
        super().watch(on_steps)
        for shard in self.team.shards if isinstance(self.team, LocalTeam) else ():
            shard.env.on_step = functools.partial(on_steps, "sampling")

    def close(self) -> None:
        """Close all environments and release all workers."""
        self.team.close()
        super().close()

    def _reachable(self, state: TrainState) -> TrainState:
        """Return the state, with new episodes if the environments cannot continue from it."""
        if self._interrupted:
            return self._with_new_episodes(state)
        is_past = state.path is not None and not self._envs_are_at(state)
        if is_past and not self.config.sampling.starts_new_episodes:
            logger.warning(
                "The environments have moved on since this state: new episodes start. To keep a"
                " state with its environments, save it with to_checkpoint while it is the newest,"
                " then load it with from_checkpoint."
            )
            return self._with_new_episodes(state)
        return state

    def _with_new_episodes(self, state: TrainState) -> TrainState:
        zeros = np.zeros(self.config.sampling.paths)
        return dataclasses.replace(state, path=None, discounted_return=zeros)

    def _envs_are_at(self, state: TrainState) -> bool:
        path, returns = self._envs_at
        if path is state.path and returns is state.discounted_return:
            return True
        if path is None or state.path is None:
            return False
        ours = jax.tree.leaves((path, returns))
        theirs = jax.tree.leaves((state.path, state.discounted_return))
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))

    def _move_envs_to(self, state: TrainState, snapshot: Snapshot | None = None) -> TrainState:
        """Restore the shards from the state, unless they are there already."""
        if snapshot is not None or not self._envs_are_at(state):
            self.team.restore(_split(state, snapshot, self.config.sampling.shards))
            self._envs_at = state.path, state.discounted_return
        return state


def _split(state: TrainState, snapshot: Snapshot | None, shards: int) -> list[ShardState]:
    """Return the part of the state of each shard, in order."""
    whole = ShardState(state.path, state.discounted_return, snapshot)
    return [
        jax.tree.map(lambda values, shard=shard: np.split(values, shards)[shard], whole)
        for shard in range(shards)
    ]


def _join(states: list[ShardState]) -> tuple[PathState | None, np.ndarray]:
    """Return path and discounted returns of all shards, in order."""
    parts = [(state.path, state.discounted_return) for state in states]
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)
