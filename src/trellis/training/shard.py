"""Implements a shard: a batch of environments with its sampler, random streams and samples.

Samples never leave the shard. It returns sums with counts, maxima, moments, and vectors of the size
of θ. One iteration calls

    collect → estimate → step (or `objective`, if there are several shards) → finish

The random streams depend on (seed, iteration, index of the shard) alone. A shard that is rebuilt
from its state before `collect` and called in the same order gives the same answers bit for bit.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from trellis.config import TrainConfig
from trellis.envs.batch import Restorability, Snapshot
from trellis.estimation.advantages import (
    CriticFit,
    Estimated,
    continuing_rewards,
    estimate_values,
    state_batch,
)
from trellis.estimation.baseline import ValueMoments
from trellis.estimation.compensation import compensated
from trellis.estimation.critic import CriticState
from trellis.estimation.normalization import discounted_returns, normalization_kl
from trellis.estimation.state_batch import StateBatch
from trellis.inputs import gathered
from trellis.moments import Moments
from trellis.optimization.objective import Objective
from trellis.optimization.step import AS_CONFIGURED, StepInfo, StepInputs
from trellis.optimization.trust_region import TrustRegion
from trellis.policies.normalizer import make_normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.samples import PathState, Samples
from trellis.sampling.vine import Vine
from trellis.training.background import Background
from trellis.training.build import MakeEnv, build_model, build_sampler, env_maker
from trellis.training.checkpoint_arrays import require_snapshot


class ShardState(NamedTuple):
    """State of a shard between two iterations, from which it can be rebuilt."""

    path: PathState | None
    """Position of the environments in their episodes; None if new episodes start."""
    discounted_return: np.ndarray
    """Running discounted return of each environment, (env,)."""
    snapshot: Snapshot | None = None
    """Snapshot of the environments; None leaves them as they are."""


class Collected(NamedTuple):
    """Statistics of the samples of an iteration."""

    steps: int
    """Number of simulator steps, rollouts included."""
    returns: Moments | None
    """Moments of running discounted returns; None if rewards are not normalized."""
    reward: Moments
    """Moments of the rewards of all time steps; with vine, of the trunks."""
    episode_return: Moments
    """Moments of the returns of finished episodes."""
    episode_length: Moments
    """Moments of the lengths of finished episodes."""
    rollout_length: Moments | None
    """Moments of the lengths of vine's rollouts; None for single path."""
    observations: Moments | None
    """Moments of this iteration's observations; None if they are not normalized."""
    gain: Moments | None
    """Moments of the rewards for the average criterion; None for the discounted one."""


class Finished(NamedTuple):
    """Results of the last call of an iteration."""

    entropy: Moments
    """Entropy of the new policy, counted by environments."""
    normalization_kl: Moments | None
    """KL that moving observation statistics add; None if they do not move."""
    states: list[ShardState]
    """State of each shard, in their order."""


class Shard:
    """One of `config.sampling.shards` equal parts of a run; by default the only one.

    Args:
        config: Settings of the whole run.
        index: Index of this part.
        make_env: Function that creates batches; by default from `config.env`.
        policy: Custom policy; by default the one that the settings describe.
    """

    def __init__(
        self,
        config: TrainConfig,
        index: int = 0,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
    ):
        self._config = part = dataclasses.replace(config, sampling=config.sampling.part)
        self._index = index
        make_env = make_env or env_maker(part)
        self.env = make_env(part.sampling.paths)
        self.model = build_model(part, self.env, policy)
        self.sampler, self._estimator = build_sampler(
            part, self.env, make_env, self.model, shard=index
        )
        self._trust_region = TrustRegion(
            self.model.policy,
            part.step,
            self._estimator,
            expected_states=part.sampling.batch_size,
            shards=config.sampling.shards,
            sequence_length=part.sampling.path_length if self.model.policy.carry_size else 1,
        )
        self.state = ShardState(None, np.zeros(part.sampling.paths))
        """State between two iterations."""
        self._fitting: Background[CriticFit] | None = None

    @property
    def samples(self) -> Samples:
        """Samples of the newest iteration."""
        return self._samples

    def restore(self, state: ShardState) -> None:
        """Continue from this state."""
        if state.snapshot is not None:
            require_snapshot(self.env, state.snapshot)
            self.env.restore(np.arange(self.env.num_envs), state.snapshot)
        self.state = state._replace(snapshot=None)

    def collect(self, theta: np.ndarray, observation_moments: Moments, iteration: int) -> Collected:
        """Collect the samples of an iteration with π_θ and return their statistics."""
        settings, new_episodes = self._config.estimation, self._config.sampling.starts_new_episodes
        self._theta, self._iteration, self._moments = theta, iteration, observation_moments
        self._fitting = None  # An iteration that failed may have left one behind.
        normalize = make_normalizer(observation_moments, enabled=settings.normalize_observations)
        samples, path = self.sampler.collect(theta, normalize, self.state.path, iteration)
        self._samples: Samples = samples
        returns, discounted_return = None, self.state.discounted_return
        if settings.normalize_rewards:
            returns, discounted_return = discounted_returns(
                samples, discounted_return, settings.gamma, new_episodes=new_episodes
            )
        self._next_state = ShardState(path, discounted_return)
        counted = slice(None)
        if new_episodes:
            counted = samples.representative(self.env.max_episode_steps)
        branches, observations = samples.branches, None
        if settings.normalize_observations:
            shape = self.model.moments_shape
            features = samples.raw_observation[..., : shape[-1]]  # An action mask may follow.
            observations = Moments.of(features, shape)
        return Collected(
            samples.steps,
            returns,
            Moments.of(samples.reward),
            Moments.of(samples.episode_return[counted]),
            Moments.of(samples.episode_length[counted]),
            None if branches is None else Moments.of(branches.of_legal(branches.length)),
            observations,
            Moments.of(continuing_rewards(samples, settings))
            if settings.criterion == "average"
            else None,
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
        """Compute advantages or Q-values with the present critic, then fit the critic.

        Args:
            critic: State of the critic.
            reward_scale: Number that rewards are divided by.
            gain: Average reward of all shards, for criterion average.
            learning_rate: Learning rate of the critic; None for that of the settings.
            fit_later: Whether the critic may be fitted in the background. Then `critic_fit` waits
                for the result, which is the same.
        """
        self._values, moments, fit = estimate_values(
            self._samples,
            self.model.critic,
            critic,
            self._config.estimation,
            reward_scale=reward_scale,
            cut_value=self._config.sampling.vine.cut_value,
            gain=gain,
            learning_rate=learning_rate,
            rng=self._stream(Purpose.CRITIC_BATCHES),
        )
        if fit is None:
            return Estimated(moments, None)
        # A fit on pictures uses all cores and much memory, so nothing runs beside it.
        if fit_later and isinstance(self._samples.observation, np.ndarray):
            self._fitting = Background(fit)
            return Estimated(moments, None)
        return Estimated(moments, fit())

    def critic_fit(self, estimated: Estimated) -> CriticFit | None:
        """Return the critic fit that belongs to the result of `estimate`; None without a critic."""
        fitting, self._fitting = self._fitting, None
        return estimated.critic_fit if fitting is None else fitting.result()

    def step(
        self, values: ValueMoments, inputs: StepInputs = AS_CONFIGURED
    ) -> tuple[np.ndarray, StepInfo]:
        """Take the whole step as one compiled program; for a run with a single shard."""
        fisher_rng, batch = self._stream(Purpose.FISHER_ROWS), self._batch(values)
        theta, info = self._trust_region.step(self._theta, batch, fisher_rng, inputs)
        return np.asarray(theta), info

    def objective(self, values: ValueMoments) -> Objective:
        """Return this shard's part of the objective, given the moments of all shards' values."""
        fisher_rng = self._stream(Purpose.FISHER_ROWS)
        return self._trust_region.objective(self._theta, self._batch(values), fisher_rng)

    def _batch(self, values: ValueMoments) -> StateBatch:
        return state_batch(self._samples, self._values, values, self._config.estimation)

    def finish(
        self, theta: np.ndarray, observation_moments: Moments, with_snapshot: bool = False
    ) -> Finished:
        """End the iteration with the new θ and observation statistics."""
        policy, samples = self.model.policy, self._samples
        # A policy with memory acts on what the old policy remembered.
        carry = None if samples.carries is None else samples.carries.before[-1]
        last = gathered(samples.observation[-1])
        params, _ = policy.distribution_params(theta, last, carry)
        entropy = float(np.mean(policy.distribution.entropy(params)))
        kl = None
        if self._config.estimation.normalize_observations:
            moved = None
            if self._config.estimation.compensate_normalization:
                moved = compensated(policy.network, theta, self._moments, observation_moments)
            kl = normalization_kl(policy, theta, samples, observation_moments, moved)
        self.state = self._next_state
        state = self.state._replace(snapshot=self.snapshot() if with_snapshot else None)
        return Finished(Moments.of_mean(entropy, self.env.num_envs), kl, [state])

    def snapshot(self) -> Snapshot | None:
        """Return the environments' snapshot; None if it is not serializable or not needed."""
        if self._config.sampling.starts_new_episodes:
            return None
        if self.env.restorability is not Restorability.SERIALIZABLE:
            return None
        return self.env.snapshot(np.arange(self.env.num_envs))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        if isinstance(self.sampler, Vine):
            self.sampler.close()

    def stream(self, purpose: Purpose, iteration: int) -> np.random.Generator:
        """Return this shard's random numbers for one purpose in one iteration."""
        return stream(self._config.seed, purpose, iteration=iteration, shard=self._index)

    def _stream(self, purpose: Purpose) -> np.random.Generator:
        return self.stream(purpose, self._iteration)
