"""A shard: an environment batch with its sampler, its random streams, and the samples it took.

Samples stay here. What leaves are answers: sums with counts, maxima, means (`reduction.py` makes
one of many), and vectors of the size of θ. The order of an iteration is

    collect ─► estimate ─► step, or gradient ─► fisher_product … ─► aim ─► evaluate … ─► finish

where each builds on what came before it. A shard draws nothing but from streams that are functions
of (seed, iteration, its index), so that one rebuilt from where it stood before `collect`, and asked
the same questions, gives the same answers to the bit.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trellis import envs
from trellis.config import TrainConfig
from trellis.envs.spaces import moments_shape, observation_encoder
from trellis.estimation import advantages as batches
from trellis.estimation.advantages import Spread
from trellis.estimation.critic import CriticState
from trellis.estimation.normalization import Moments, moments_of, standardizer
from trellis.estimation.returns import gae, path_returns, running_returns, successor_values
from trellis.estimation.surrogate import StateBatch
from trellis.optimization.rules import rule_of
from trellis.optimization.step import StepInfo
from trellis.optimization.trust_region import TrustRegion
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import PathState
from trellis.sampling.vine import Vine
from trellis.training.build import (
    MakeEnv,
    build_critic,
    build_sampler,
    env_from_catalog,
    fit_policy,
    require_restorable,
)
from trellis.training.objective import Evaluated, Gradient, ShardObjective
from trellis.training.reduction import Maximum, Mean


class Standing(NamedTuple):
    """Where a shard stands between two iterations: with it, and its streams, it can be rebuilt."""

    path: PathState | None
    """None if new episodes are to begin."""
    discounted_return: np.ndarray
    """Running discounted return of each environment, for the scale of rewards."""
    rows: envs.Rows | None = None
    """The environments' snapshot; None leaves them as they are."""


class Collected(NamedTuple):
    """What was collected, in numbers."""

    steps: int
    returns: Moments | None
    """Of running discounted returns, where rewards are normalized by them."""
    episode_return: Moments
    episode_length: Moments
    rollout_length: Moments | None
    """With vine."""


class Criticism(NamedTuple):
    """What became of the critic."""

    critic: Mean
    """Fitted to this shard's samples."""
    loss: Mean
    advantage: Spread
    target: Spread
    """Both for the explained variance."""


class Estimated(NamedTuple):
    """What the samples were found to be worth."""

    values: Spread
    """Of advantages; with vine, of the differences among the actions of a state."""
    criticism: Criticism | None


class Finished(NamedTuple):
    """The end of an iteration."""

    entropy: Mean
    observations: Moments | None
    """What this iteration adds to the statistics of observations."""
    standings: list[Standing]


class Shard:
    """One of `config.sampling.shards` equal parts of a run; the first, and only one, by default."""

    def __init__(
        self,
        config: TrainConfig,
        index: int = 0,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
    ):
        self._config = part = dataclasses.replace(config, sampling=config.sampling.part)
        self._index = index
        make_env = make_env or env_from_catalog(part)
        self.env = make_env(part.sampling.paths)
        if part.sampling.is_vine:
            require_restorable(self.env)
        self.features, self.encode = observation_encoder(self.env.observation_space)
        self.policy = fit_policy(policy, part, self.features, self.env)
        self.critic = build_critic(part, self.features)
        self._sampler, self._estimator = build_sampler(
            part, self.env, make_env, self.policy, self.encode, shard=index
        )
        self._trust_region = TrustRegion(
            self.policy,
            part.step,
            self._estimator,
            expected_states=part.sampling.batch_size,
            shards=config.sampling.shards,
        )
        self._standing = Standing(None, np.zeros(part.sampling.paths))

    def stand(self, standing: Standing) -> None:
        """Puts the shard where it, or another in its place, stood."""
        if standing.rows is not None:
            self.env.restore(np.arange(self.env.num_envs), standing.rows)
        self._standing = standing._replace(rows=None)

    def collect(self, theta: np.ndarray, moments: Moments, iteration: int) -> Collected:
        """Takes this iteration's samples by π_θ, for observations of these statistics."""
        self._theta, self._iteration = theta, iteration
        samples, path = self._sampler.collect(
            theta, normalizer(self._config, moments), self._standing.path, iteration
        )
        self._samples = samples
        running = self._running_returns(samples)
        before = self._standing.discounted_return
        if running is not None:
            over = samples.ended[-1] | self._config.sampling.starts_anew
            before = np.where(over, 0.0, running[-1]).astype(np.float64)
        self._next = Standing(path, before)
        branches = samples.branches
        counted = slice(None)
        if self._config.sampling.starts_anew:
            counted = samples.representative(self.env.max_episode_steps)
        return Collected(
            samples.steps,
            None if running is None else moments_of(running),
            moments_of(samples.episode_return[counted]),
            moments_of(samples.episode_length[counted]),
            None if branches is None else moments_of(branches.length),
        )

    def _running_returns(self, samples: Samples) -> np.ndarray | None:
        settings = self._config.estimation
        if not settings.normalize_rewards:
            return None
        before = self._standing.discounted_return
        return running_returns(samples.reward, samples.ended, before, settings.gamma)

    def estimate(self, critic: CriticState, reward_scale: float) -> Estimated:
        """What the samples are worth by the critic as it is; then the critic's fit to them."""
        samples, settings = self._samples, self._config.estimation
        reward, value_of = samples.reward / reward_scale, self._value_function(critic)
        advantage = criticism = None
        if value_of is not None:
            advantage, criticism = self._criticize(critic, samples, reward, value_of)
        if samples.branches is not None:
            self._values = batches.rollout_values(samples.branches, reward_scale, value_of)
            return Estimated(batches.spread_by_state(self._values), criticism)
        if advantage is None:
            advantage = path_returns(reward, samples, np.zeros_like(reward), settings.gamma)
        self._values = advantage
        return Estimated(batches.spread_of(advantage), criticism)

    def _value_function(self, state: CriticState) -> batches.ValueFunction | None:
        critic = self.critic
        if critic is None:
            return None
        return lambda observation, age: critic.predict(state, observation, age)

    def _criticize(
        self,
        state: CriticState,
        samples: Samples,
        reward: np.ndarray,
        value_of: batches.ValueFunction,
    ) -> tuple[np.ndarray, Criticism]:
        """Advantages along the paths, (T, N), by the critic as it was; then its fit."""
        assert self.critic is not None
        settings = self._config.estimation
        final_age = samples.age[tuple(samples.final_at.T)] + 1
        last_age = np.where(samples.ended[-1], 0, samples.age[-1] + 1)
        value = value_of(samples.observation, samples.age)
        successor = successor_values(
            samples,
            value,
            value_of(samples.final_observation, final_age),
            value_of(samples.last_observation, last_age),
        )
        advantage = gae(reward, samples, value, successor, settings.gamma, settings.gae_lambda)
        target = (advantage + value).ravel()
        critic, loss = self.critic.fit(
            state,
            samples.observation.reshape(target.size, -1),
            samples.age.ravel(),
            target,
            self._stream(Purpose.CRITIC_BATCHES),
        )
        count = target.size
        return advantage, Criticism(
            Mean(count, critic), Mean(count, loss), _spread(advantage), _spread(target)
        )

    def step(self, spread: Spread) -> tuple[np.ndarray, StepInfo]:
        """The whole step, where this shard is all there is: one compiled program."""
        rows = self._stream(Purpose.FISHER_ROWS)
        theta, info = self._trust_region.step(self._theta, self._batch(spread), rows)
        return np.asarray(theta), info

    def gradient(self, spread: Spread) -> Gradient:
        """L and ∇L at the θ that sampled, with values rescaled by the spread of all shards."""
        chunks = self._trust_region.cut(
            self._theta, self._batch(spread), self._stream(Purpose.FISHER_ROWS)
        )
        curvature = rule_of(self._config.step).curvature
        self._objective = ShardObjective(
            self.policy, self._estimator, curvature, self._theta, chunks
        )
        return self._objective.gradient()

    def fisher_product(self, v: np.ndarray) -> np.ndarray:
        """Σ weight·F_n v."""
        return self._objective.fisher_product(v)

    def aim(self, direction: np.ndarray) -> None:
        """The direction that the next two are about."""
        self._objective.aim(direction)

    def max_quadratic_kl(self) -> Maximum:
        """The largest ½dᵀF_s d over states s."""
        return self._objective.max_quadratic_kl()

    def evaluate(self, multiple: np.ndarray) -> Evaluated:
        """L and KL at θ_old + multiple·direction."""
        return self._objective.evaluate(multiple)

    def _batch(self, spread: Spread) -> StateBatch:
        samples, settings = self._samples, self._config.estimation
        weight = batches.state_weights(samples, settings.gamma if settings.discount_states else 1.0)
        if samples.branches is not None:
            q = batches.rescale_by_state(self._values, settings.advantages, spread)
            return batches.vine_batch(samples, q, weight)
        advantage = batches.rescale(self._values, settings.advantages, spread)
        return batches.path_batch(samples, advantage, weight)

    def finish(self, theta: np.ndarray, with_rows: bool = False) -> Finished:
        """Goes on to the next iteration; `theta` is what the step made of it."""
        last = np.asarray(self._samples.observation[-1])
        params, _ = self.policy.distribution_params(theta, last)
        entropy = float(np.mean(self.policy.distribution.entropy(params)))
        observations = None
        if self._config.estimation.normalize_observations:
            observations = moments_of(self._samples.raw_observation, moments_shape(self.features))
        self._standing = self._next
        rows = self.rows() if with_rows else None
        standing = self._standing._replace(rows=rows)
        return Finished(Mean(self.env.num_envs, entropy), observations, [standing])

    def rows(self) -> envs.Rows | None:
        """The environments' snapshot, where they can be put back and it matters."""
        if self._config.sampling.starts_anew:
            return None
        if self.env.restorability is not envs.Restorability.SERIALIZABLE:
            return None
        return self.env.snapshot(np.arange(self.env.num_envs))

    def close(self) -> None:
        """Lets go of the environments."""
        self.env.close()
        if isinstance(self._sampler, Vine):
            self._sampler.close()

    def _stream(self, purpose: Purpose) -> np.random.Generator:
        return stream(self._config.seed, purpose, iteration=self._iteration, shard=self._index)


def normalizer(config: TrainConfig, moments: Moments) -> Callable[[np.ndarray], np.ndarray]:
    """What the policy's observations go through before it sees them."""
    if not config.estimation.normalize_observations:
        return _unchanged
    return standardizer(moments)


def _spread(values: np.ndarray) -> Spread:
    return Spread(values.size, float(values.mean()), float(np.var(values)))


def _unchanged(x: Any) -> Any:
    return x
