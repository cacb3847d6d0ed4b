"""The loop (Sec. 6): sample, estimate, step. One iteration is `iterate(state) -> (state, metrics)`.

Everything that surrounds it (logs, evaluation on a schedule, checkpoints, progress) is in `runs/`
and calls this. The samples are with the shards of a team (`scale/`), one in this process by
default: what is asked of them here are sums over all. `iterate` is a pure function of the state but
for the environments, which live with the shards; `freeze` and `thaw` take them along.
"""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis import envs
from trellis.config import TrainConfig
from trellis.envs.spaces import moments_shape, observation_encoder
from trellis.estimation.normalization import Moments, no_moments
from trellis.optimization.rules import rule_of
from trellis.optimization.step import Status
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.single_path import PathState
from trellis.training import state as run_state
from trellis.training.build import (
    MakeEnv,
    build_critic,
    env_from_catalog,
    fit_policy,
    require_restorable,
)
from trellis.training.evaluation import Evaluator, Player
from trellis.training.shard import Collected, Criticism, Estimated, Standing, normalizer
from trellis.training.state import Evaluation, TrainState
from trellis.training.team import LocalTeam, MakeTeam, Team

logger = logging.getLogger(__name__)


class Trainer:
    """TRPO by single path or vine, for one configuration.

    `make_env(num_envs)` replaces the lookup of `config.env`, for environments that have no id;
    `make_team` has the shards held elsewhere than in this process.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        *,
        make_team: MakeTeam | None = None,
    ):
        self.config = config
        _ = rule_of(config.step)  # Which a search does not have, and says where it belongs.
        self._make_env = make_env or env_from_catalog(config)
        local = None if make_team else LocalTeam(config, make_env, policy)
        self.env = local.shards[0].env if local else self._make_env(1)
        if config.sampling.is_vine:
            require_restorable(self.env)
        self._features, self.encode = observation_encoder(self.env.observation_space)
        self.policy = fit_policy(policy, config, self._features, self.env)
        self._critic = build_critic(config, self._features)
        self._team: Team
        if local:
            self._team = local
        else:
            assert make_team is not None
            self._team = make_team(config, make_env, self.policy)
        self._standing: tuple[Any, Any] = (None, None)
        """Path and discounted returns that the shards know of."""
        self._adrift = False
        """Whether an iteration broke off: where the environments are, no state knows."""
        self._evaluator = Evaluator(
            self._make_env, self.policy, self.encode, config.seed, drawn=config.eval_drawn
        )

    def start(self) -> TrainState:
        """Before the first iteration."""
        seed = self.config.seed
        critic = self._critic.init(stream(seed, Purpose.CRITIC_INIT)) if self._critic else {}
        return TrainState(
            theta=self.policy.init(stream(seed, Purpose.POLICY_INIT)),
            critic=critic,
            observation_moments=no_moments(moments_shape(self._features)),
            return_moments=no_moments(()),
            discounted_return=np.zeros(self.config.sampling.paths),
            path=None,
        )

    def iterate(self, state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """One iteration: the next state, and what happened in it.

        After one that broke off (an exception, Ctrl-C in a notebook), and from a state that is not
        the last, episodes begin anew.
        """
        state = self._as_it_stands(state)
        self._adrift = True
        if not self._stands_at(state):
            self._stand(state)
        team = self._team
        clock = [time.perf_counter()]
        collected: Collected = team.ask(
            "collect", state.theta, state.observation_moments, state.iteration
        )
        clock.append(time.perf_counter())

        return_moments, reward_scale = self._scale_rewards(state.return_moments, collected)
        estimated: Estimated = team.ask("estimate", state.critic, reward_scale)
        clock.append(time.perf_counter())

        theta, info = team.step(state.theta, estimated.values)
        clock.append(time.perf_counter())

        finished = team.finish(theta)
        path, discounted_return = self._standing = _joined(finished.standings)
        self._adrift = False
        observation_moments = state.observation_moments
        if finished.observations is not None:
            observation_moments = observation_moments.merge(finished.observations)
        state = dataclasses.replace(
            state,
            theta=theta,
            critic=estimated.criticism.critic.value if estimated.criticism else state.critic,
            path=path,
            discounted_return=discounted_return,
            observation_moments=observation_moments,
            return_moments=return_moments,
            iteration=state.iteration + 1,
            steps=state.steps + collected.steps,
        )
        sampling, estimation, update = np.diff(clock).tolist()
        metrics = {
            "iteration": state.iteration,
            "steps": state.steps,
            **_episode_metrics(collected),
            **_branch_metrics(collected),
            "kl": float(info.mean_kl),
            "max_kl": float(info.max_kl),
            "surrogate_gain": float(info.surrogate_after - info.surrogate_before),
            "status": Status(int(info.status)).name.lower(),
            "step_fraction": float(info.step_fraction),
            "backtracks": int(info.backtracks),
            "cg_residual": float(info.cg_residual),
            "gradient_norm": float(info.gradient_norm),
            "entropy": finished.entropy.value,
            **_critic_metrics(estimated.criticism),
            "seconds_sampling": sampling,
            "seconds_estimation": estimation,
            "seconds_update": update,
            "steps_per_second": collected.steps / (clock[-1] - clock[0]),
        }
        return state, {key: value for key, value in metrics.items() if value is not None}

    def _scale_rewards(self, moments: Moments, collected: Collected) -> tuple[Moments, float]:
        """The running standard deviation of the discounted return, by which rewards are divided."""
        if collected.returns is None:
            return moments, 1.0
        moments = moments.merge(collected.returns)
        return moments, float(np.sqrt(moments.variance + 1e-8))

    def _stands_at(self, state: TrainState) -> bool:
        """Whether the environments are where the state has them, or a copy of it."""
        path, returns = self._standing
        if path is state.path and returns is state.discounted_return:
            return True
        if path is None or state.path is None:
            return False
        pairs = zip((*path, returns), (*state.path, state.discounted_return), strict=True)
        return all(np.array_equal(ours, theirs) for ours, theirs in pairs)

    def _stand(self, state: TrainState, rows: envs.Rows | None = None) -> None:
        """Puts the shards where the state says, with the environments' snapshot if there is one."""
        shards = self.config.sampling.shards
        paths = [None] * shards if state.path is None else _divided(state.path, shards)
        returns = np.split(state.discounted_return, shards)
        snapshots: list[envs.Rows | None] = [None] * shards
        if rows is not None:
            columns = {name: np.split(values, shards) for name, values in rows.items()}
            snapshots = [{k: v[i] for k, v in columns.items()} for i in range(shards)]
        self._team.stand(list(map(Standing, paths, returns, snapshots)))
        self._standing = state.path, state.discounted_return

    def _as_it_stands(self, state: TrainState) -> TrainState:
        """The state, at new episodes if the environments are not where it has them any more."""
        if self._adrift:
            return self._anew(state)
        is_past = state.path is not None and not self._stands_at(state)
        if is_past and not self.config.sampling.starts_anew:
            logger.warning(
                "the environments have moved on since this state, so its episodes start anew; to"
                " come back to a state with them, freeze it while it is the last, and thaw what"
                " was frozen"
            )
            return self._anew(state)
        return state

    def _anew(self, state: TrainState) -> TrainState:
        """The same, at the beginning of new episodes."""
        zeros = np.zeros(self.config.sampling.paths)
        return dataclasses.replace(state, path=None, discounted_return=zeros)

    def normalizer(self, moments: Moments) -> Callable[[np.ndarray], np.ndarray]:
        """What the policy's observations go through before it sees them."""
        return normalizer(self.config, moments)

    def evaluate(self, state: TrainState, episodes: int, *, best: bool = False) -> Evaluation:
        """Episodes on environments of their own, from fixed seeds."""
        theta, moments = state.chosen(best=best)
        return self._evaluator.evaluate(theta, self.normalizer(moments), episodes)

    def player(self, state: TrainState, rng: np.random.Generator, *, best: bool = False) -> Player:
        """From what is seen to actions, as in evaluations."""
        theta, moments = state.chosen(best=best)
        return self._evaluator.player(theta, self.normalizer(moments), rng)

    def freeze(self, state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state as named arrays and plain values, with the environments where they can be."""
        state = self._as_it_stands(state)
        arrays, values = run_state.freeze(state)
        rows = None if state.path is None else self._team.rows()
        if rows is not None:
            arrays |= {
                f"env/{name}": np.concatenate([np.asarray(part[name]) for part in rows])
                for name in rows[0]
            }
        values |= run_state.made_for(self.env, self.policy)
        return arrays, values

    def thaw(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> TrainState:
        """The state back again, environments included; without their snapshot, at new episodes."""
        run_state.require_same_make(values, arrays["theta"], self.env, self.policy, self.config.env)
        state = run_state.thaw(arrays, values)
        rows = {k.removeprefix("env/"): v for k, v in arrays.items() if k.startswith("env/")}
        if rows:
            self._stand(state, rows)
        elif state.path is not None:
            if not self.config.sampling.starts_anew:
                logger.warning(
                    "%s cannot be saved, so its episodes start anew: training goes on, but not bit"
                    " for bit as it would have",
                    self.config.env,
                )
            state = self._anew(state)
        self._adrift = False
        return state

    def close(self) -> None:
        """Lets go of the environments, and of the workers that held them."""
        self._team.close()
        if not isinstance(self._team, LocalTeam):
            self.env.close()
        self._evaluator.close()


def _divided(path: PathState, shards: int) -> list[PathState]:
    return [PathState(*part) for part in zip(*(np.split(v, shards) for v in path), strict=True)]


def _joined(standings: list[Standing]) -> tuple[PathState | None, np.ndarray]:
    """Path and discounted returns of all shards, in their order."""
    first = standings[0]
    if len(standings) == 1:
        return first.path, first.discounted_return
    paths = [standing.path for standing in standings if standing.path is not None]
    path = PathState(*map(np.concatenate, zip(*paths, strict=True))) if paths else None
    return path, np.concatenate([standing.discounted_return for standing in standings])


def _episode_metrics(collected: Collected) -> dict[str, Any]:
    returns, lengths = collected.episode_return, collected.episode_length
    if not returns.count:
        return {"episodes": 0}
    return {
        "episodes": int(returns.count),
        "episode_return_mean": float(returns.mean),
        "episode_return_std": float(np.sqrt(returns.squares / returns.count)),
        "episode_length_mean": float(lengths.mean),
    }


def _branch_metrics(collected: Collected) -> dict[str, Any]:
    lengths = collected.rollout_length
    if lengths is None:
        return {}
    return {"rollouts": int(lengths.count), "rollout_length_mean": float(lengths.mean)}


def _critic_metrics(criticism: Criticism | None) -> dict[str, Any]:
    if criticism is None:
        return {}
    explained, spread = None, criticism.target.variance
    if spread > 0:
        # In single precision, as the samples are.
        explained = float(1 - np.float32(criticism.advantage.variance) / np.float32(spread))
    return {"critic_loss": criticism.loss.value, "explained_variance": explained}
