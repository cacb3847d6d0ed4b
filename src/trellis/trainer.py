"""The loop (Sec. 6): sample, estimate, step. One iteration is `iterate(state) -> (state, metrics)`.

Everything that surrounds it (logs, evaluation on a schedule, checkpoints, progress) is in `runs/`
and calls this. `iterate` is a pure function of the state but for the environments, which live here;
`freeze` and `thaw` take them along.
"""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import envs
from trellis.envs.encoding import observation_encoder
from trellis.estimation import batches
from trellis.estimation.normalization import Moments, Standardizer, no_moments
from trellis.estimation.objective import StateBatch
from trellis.estimation.returns import gae, path_returns, running_returns, successor_values
from trellis.optimization.local import TrustRegion
from trellis.optimization.trust_region import Status
from trellis.parts import (
    MakeEnv,
    build_critic,
    build_policy,
    build_sampler,
    env_from_catalog,
    require_restorable,
)
from trellis.policies.policy import Policy
from trellis.runs import state as run_state
from trellis.runs.config import TrainConfig
from trellis.runs.state import Evaluation, TrainState
from trellis.sampling.samples import Samples
from trellis.sampling.vine import Vine
from trellis.streams import Purpose, stream
from trellis.threads import one_blas_thread

logger = logging.getLogger(__name__)

EVALUATION_LIMIT = 100_000
"""Steps after which an evaluation gives up on an episode that does not end."""


class Trainer:
    """TRPO by single path or vine, for one configuration.

    `make_env(num_envs)` replaces the lookup of `config.env`, for environments that have no id.
    """

    def __init__(
        self, config: TrainConfig, make_env: MakeEnv | None = None, policy: Policy | None = None
    ):
        self.config = config
        self._make_env = make_env or env_from_catalog(config)
        self.env = self._make_env(config.sampling.paths)
        if config.sampling.is_vine:
            require_restorable(self.env)
        features, self.encode = observation_encoder(self.env.observation_space)
        self.policy = policy or build_policy(config, features, self.env)
        self._features = features
        self._critic = build_critic(config, features)
        self._sampler, estimator = build_sampler(
            config, self.env, self._make_env, self.policy, self.encode
        )
        self._trust_region = TrustRegion(
            self.policy, config.step, estimator, expected_states=config.sampling.batch_size
        )
        self._eval_env: envs.BatchEnv | None = None

    def start(self) -> TrainState:
        """Before the first iteration."""
        seed = self.config.seed
        critic = self._critic.init(stream(seed, Purpose.CRITIC_INIT)) if self._critic else {}
        return TrainState(
            theta=self.policy.init(stream(seed, Purpose.POLICY_INIT)),
            critic=critic,
            observation_moments=no_moments((self._features,)),
            return_moments=no_moments(()),
            discounted_return=np.zeros(self.env.num_envs),
            path=None,
        )

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """One iteration: the next state, and what happened in it."""
        clock = [time.perf_counter()]
        samples, path = self._sampler.collect(
            state.theta, self.normalizer(state.observation_moments), state.path, state.iteration
        )
        clock.append(time.perf_counter())

        state, batch, critic_metrics = self._estimate(state, samples)
        clock.append(time.perf_counter())

        rows = stream(self.config.seed, Purpose.FISHER_ROWS, iteration=state.iteration)
        theta, info = self._trust_region.step(state.theta, batch, rows)
        theta = np.asarray(theta)
        clock.append(time.perf_counter())

        state = dataclasses.replace(
            state,
            theta=theta,
            path=path,
            observation_moments=self._observe(state.observation_moments, samples),
            iteration=state.iteration + 1,
            steps=state.steps + samples.steps,
        )
        sampling, estimation, update = np.diff(clock).tolist()
        metrics = {
            "iteration": state.iteration,
            "steps": state.steps,
            **_episode_metrics(samples),
            **_branch_metrics(samples),
            "kl": float(info.mean_kl),
            "max_kl": float(info.max_kl),
            "surrogate_gain": float(info.surrogate_after - info.surrogate_before),
            "status": Status(int(info.status)).name.lower(),
            "step_fraction": float(info.step_fraction),
            "backtracks": int(info.backtracks),
            "cg_residual": float(info.cg_residual),
            "gradient_norm": float(info.gradient_norm),
            "entropy": self._entropy(theta, samples),
            **critic_metrics,
            "seconds_sampling": sampling,
            "seconds_estimation": estimation,
            "seconds_update": update,
            "steps_per_second": samples.steps / (clock[-1] - clock[0]),
        }
        return state, {key: value for key, value in metrics.items() if value is not None}

    def _estimate(
        self, state: TrainState, samples: Samples
    ) -> tuple[TrainState, StateBatch, dict[str, Any]]:
        """The samples with what they are worth, and the critic fitted to what was seen."""
        settings = self.config.estimation
        state, scale = self._scale_rewards(state, samples)
        reward, value_of = samples.reward / scale, self._value_function(state)
        weight = batches.state_weights(samples, settings.gamma if settings.discount_states else 1.0)
        advantage, metrics = None, {}
        if value_of is not None:
            state, advantage, metrics = self._criticize(state, samples, reward, value_of)
        if samples.branches is not None:
            q = batches.rollout_values(samples.branches, scale, value_of)
            q = batches.rescale_by_state(q, settings.advantages)
            return state, batches.vine_batch(samples, q, weight), metrics
        if advantage is None:
            advantage = path_returns(reward, samples, np.zeros_like(reward), settings.gamma)
        advantage = batches.rescale(advantage, settings.advantages)
        return state, batches.path_batch(samples, advantage, weight), metrics

    def _value_function(self, state: TrainState) -> batches.ValueFunction | None:
        """V by the critic as it is in this state; None without one."""
        critic = self._critic
        if critic is None:
            return None
        return lambda observation, age: critic.predict(state.critic, observation, age)

    def _criticize(
        self,
        state: TrainState,
        samples: Samples,
        reward: np.ndarray,
        value_of: batches.ValueFunction,
    ) -> tuple[TrainState, np.ndarray, dict[str, Any]]:
        """Advantages along the paths, (T, N), by the critic as it was; then its fit."""
        assert self._critic is not None
        settings = self.config.estimation
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
        critic, loss = self._critic.fit(
            state.critic,
            samples.observation.reshape(target.size, -1),
            samples.age.ravel(),
            target,
            stream(self.config.seed, Purpose.CRITIC_BATCHES, iteration=state.iteration),
        )
        spread = np.var(target)
        explained = float(1 - np.var(advantage) / spread) if spread > 0 else None
        metrics = {"critic_loss": loss, "explained_variance": explained}
        return dataclasses.replace(state, critic=critic), advantage, metrics

    def _scale_rewards(self, state: TrainState, samples: Samples) -> tuple[TrainState, float]:
        """The running standard deviation of the discounted return, by which rewards are divided."""
        if not self.config.estimation.normalize_rewards:
            return state, 1.0
        gamma = self.config.estimation.gamma
        running = running_returns(samples.reward, samples.ended, state.discounted_return, gamma)
        moments = state.return_moments.update(running)
        over = samples.ended[-1] | self.config.sampling.starts_anew
        state = dataclasses.replace(
            state,
            return_moments=moments,
            discounted_return=np.where(over, 0.0, running[-1]).astype(np.float64),
        )
        return state, float(np.sqrt(moments.variance + 1e-8))

    def normalizer(self, moments: Moments) -> Callable[[np.ndarray], np.ndarray]:
        """What the policy's observations go through before it sees them."""
        if not self.config.estimation.normalize_observations:
            return _unchanged
        return Standardizer(moments)

    def _observe(self, moments: Moments, samples: Samples) -> Moments:
        if not self.config.estimation.normalize_observations:
            return moments
        return moments.update(samples.raw_observation.reshape(-1, self._features))

    def _entropy(self, theta: np.ndarray, samples: Samples) -> float:
        params, _ = self.policy.distribution_params(theta, samples.observation[-1])
        return float(np.mean(self.policy.distribution.entropy(params)))

    def evaluate(self, state: TrainState, episodes: int, *, best: bool = False) -> Evaluation:
        """Episodes without exploration noise, on environments of their own, from fixed seeds."""
        theta, moments = state.theta, state.observation_moments
        if best and state.best_theta is not None and state.best_moments is not None:
            theta, moments = state.best_theta, state.best_moments
        if self._eval_env is None or self._eval_env.num_envs != episodes:
            if self._eval_env is not None:
                self._eval_env.close()
            self._eval_env = self._make_env(episodes)
        env, normalize = self._eval_env, self.normalizer(moments)
        seeds = stream(self.config.seed, Purpose.EVALUATION).integers(2**31, size=episodes)
        raw = self.encode(env.reset(np.arange(episodes), seeds))
        returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        active = np.ones(episodes, bool)
        with one_blas_thread():
            for _ in range(EVALUATION_LIMIT):
                step = env.step(self.act(theta, normalize(raw)), active)
                returns += np.where(active, step.reward, 0.0)
                lengths += active
                active = active & ~(step.terminated | step.truncated)
                if not active.any():
                    break
                raw = self.encode(step.observation)
        return Evaluation(returns, lengths)

    def act(self, theta: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """The most probable actions, in the policy's own terms."""
        params, _ = self.policy.distribution_params(theta, observation)
        return self.policy.distribution.mode(params)

    def freeze(self, state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state as named arrays and plain values, with the environments where they can be."""
        arrays, values = run_state.freeze(state)
        if self._keeps_environments and state.path is not None:
            rows = self.env.snapshot(np.arange(self.env.num_envs))
            arrays |= {f"env/{name}": np.asarray(row) for name, row in rows.items()}
        values["spaces"] = self._spaces()
        return arrays, values

    def thaw(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> TrainState:
        """The state back again, environments included; without their snapshot, at new episodes."""
        ours = self._spaces()
        for name, theirs in values["spaces"].items():
            if theirs != ours[name]:
                raise ValueError(
                    f"this checkpoint is of another environment: its {name} is {theirs},"
                    f" that of {self.config.env} is {ours[name]}"
                )
        state = run_state.thaw(arrays, values)
        rows = {k.removeprefix("env/"): v for k, v in arrays.items() if k.startswith("env/")}
        if rows:
            self.env.restore(np.arange(self.env.num_envs), rows)
        elif state.path is not None:
            if not self.config.sampling.starts_anew:
                logger.warning(
                    "%s cannot be saved, so its episodes start anew: training goes on, but not bit"
                    " for bit as it would have",
                    self.config.env,
                )
            zeros = np.zeros(self.env.num_envs)
            state = dataclasses.replace(state, path=None, discounted_return=zeros)
        return state

    def _spaces(self) -> dict[str, str]:
        return {
            "observation space": str(self.env.observation_space),
            "action space": str(self.env.action_space),
        }

    @property
    def _keeps_environments(self) -> bool:
        restorable = self.env.restorability is envs.Restorability.SERIALIZABLE
        return restorable and not self.config.sampling.starts_anew

    def close(self) -> None:
        """Lets go of the environments."""
        self.env.close()
        if isinstance(self._sampler, Vine):
            self._sampler.close()
        if self._eval_env is not None:
            self._eval_env.close()


def _episode_metrics(samples: Samples) -> dict[str, Any]:
    if not len(samples.episode_return):
        return {"episodes": 0}
    return {
        "episodes": len(samples.episode_return),
        "episode_return_mean": float(np.mean(samples.episode_return)),
        "episode_return_std": float(np.std(samples.episode_return)),
        "episode_length_mean": float(np.mean(samples.episode_length)),
    }


def _branch_metrics(samples: Samples) -> dict[str, Any]:
    if samples.branches is None:
        return {}
    lengths = samples.branches.length
    return {"rollouts": lengths.size, "rollout_length_mean": float(np.mean(lengths))}


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x
