"""Trains on environments in JAX with iterations that are one compiled program each.

`CompiledTrainer` is a `Trainer` whose iteration runs on the device from the first sample to the new
θ: only statistics come back. States, checkpoints, evaluations and metrics are those of `Trainer`,
and so is the run, up to rounding. While the device computes, the random numbers of the next
iteration are made.

`why_not_compiled` says which settings need the ordinary trainer.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from trellis.config import TrainConfig
from trellis.estimation.compiled import Running
from trellis.estimation.critic import MLPCritic, warn_of_divergence
from trellis.estimation.device_moments import to_device, to_host
from trellis.estimation.estimates import CriticFit, Estimated
from trellis.moments import Moments
from trellis.optimization.fisher import choose_rows, num_rows
from trellis.optimization.rules import StepSize, rule_of
from trellis.optimization.trust_region import even_chunk, largest_chunk_of
from trellis.policies.normalizer import make_normalizer
from trellis.rng import Purpose
from trellis.sampling.compiled import CompiledPath, scaling_of
from trellis.sampling.samples import PathState
from trellis.training.build import Model
from trellis.training.program import (
    Chance,
    Learned,
    Outputs,
    Program,
    Schedule,
    compiled_iteration,
    on_host,
)
from trellis.training.schedules import critic_learning_rate, step_inputs
from trellis.training.shard import Collected, Finished, Shard, ShardState
from trellis.training.state import TrainState
from trellis.training.team import LocalTeam
from trellis.training.trainer import Results, Trainer

SMALLEST_CHUNK = 64
"""Smallest number of states per chunk, if several runs share the cache."""


def why_not_compiled(team: LocalTeam, config: TrainConfig) -> str:
    """Return why iterations cannot be one compiled program; an empty text if they can.

    Args:
        team: Team of a run.
        config: Settings of the run.
    """
    shard, settings = team.shards[0], config.estimation
    reasons = {
        "the environment is not written in JAX": not hasattr(shard.env, "functions"),
        "the sampler is vine": config.sampling.is_vine,
        "the policy has memory, or sees pictures": not isinstance(shard.sampler, CompiledPath),
        "there are several shards": config.sampling.shards > 1,
        "the critic is linear": not isinstance(shard.model.critic, MLPCritic | None),
        "the baseline depends on time": settings.critic == "none" and settings.baseline == "time",
        "the returns have a horizon": settings.critic == "none" and settings.horizon is not None,
        "states are discounted": settings.discount_states,
        "first layers are compensated": settings.compensate_normalization,
        f"the method is {config.step.method}": rule_of(config.step).step_size is StepSize.SOLVED,
    }
    return next((reason for reason, is_true in reasons.items() if is_true), "")


class Prepared(NamedTuple):
    """Random numbers of an iteration."""

    iteration: int
    """Index of the iteration."""
    first_seeds: np.ndarray | None
    """Seeds of episodes that start before the first step; None if none do."""
    chance: Chance
    """All other random numbers."""


class Inputs(NamedTuple):
    """Inputs of the program that belong to one run, besides its environments."""

    learned: Learned
    """Parameters and statistics."""
    running: Running
    """Sums along the episodes."""
    chance: Chance
    """Streams of random numbers."""
    started: bool
    """Whether new episodes have started, in environments that the batch holds."""


class CompiledTrainer(Trainer):
    """Trainer whose iterations are one compiled program; see `why_not_compiled`.

    Args:
        config: Settings of the run.
        team: Team with the environments.
        make_env: Function that creates batches for evaluations; by default from `config.env`.
    """

    def __init__(self, config: TrainConfig, team: LocalTeam, make_env: Any = None):
        super().__init__(config, make_env, team=team)
        self.shard = team.shards[0]
        assert isinstance(self.shard.sampler, CompiledPath)
        self.sampler = self.shard.sampler
        self.program = build_program(config, self.model, self.shard)
        self._prepared: Prepared | None = None

    def _run(self, state: TrainState) -> Results:
        clock = [time.perf_counter()]
        learned, running, chance, _ = self.inputs(state)
        schedule = schedule_of(self.config, self.model, state.steps)
        outputs = compiled_iteration(
            self.program, learned, schedule, self.sampler.env.rows, running, chance
        )
        self.prepare_next(state)
        results = self.results(state, on_host(outputs), clock)
        self.sampler.env.rows = outputs.place.rows
        return results

    def inputs(self, state: TrainState) -> "Inputs":
        """Return the inputs of the program, after new episodes have started if they are due."""
        prepared, path = self._prepared, self.shard.state.path
        starts = path is None or self.config.sampling.starts_new_episodes
        if (
            prepared is None
            or prepared.iteration != state.iteration
            or (starts is (prepared.first_seeds is None))
        ):
            prepared = self._prepare(state.iteration, path)
        if path is None or prepared.first_seeds is not None:
            assert prepared.first_seeds is not None
            path = self.sampler.start_episodes(prepared.first_seeds)
        sums = state.discounted_return, path.episode_return
        running = Running(*(np.asarray(values, np.float32) for values in sums))
        started = prepared.first_seeds is not None
        return Inputs(learned_of(state, self.config), running, prepared.chance, started)

    def prepare_next(self, state: TrainState) -> None:
        """Make the random numbers of the next iteration, while the device computes this one."""
        self._prepared = self._prepare(state.iteration + 1, PathState(*[np.zeros(0)] * 3))

    def results(self, state: TrainState, outputs: Outputs, clock: list[float]) -> Results:
        """Return the results of an iteration from what the program returned.

        Args:
            state: State before the iteration.
            outputs: Outputs of the program on the host.
            clock: Time before the iteration; the time after it is added.
        """
        clock.append(time.perf_counter())
        place, settings = outputs.place, self.config.estimation
        for what, is_broken, values in (
            ("observation", place.broken.observation, place.broken.observations),
            ("reward", place.broken.reward, place.broken.rewards),
        ):
            if is_broken:
                self.shard.env.check_finite(what, values)
        returns, discounted = None, state.discounted_return
        return_moments = state.return_moments
        if settings.normalize_rewards:
            returns = to_host(place.statistics.returns)
            discounted = place.running.discounted_return.astype(np.float64)
            return_moments = return_moments.merge(returns)
        observed = to_host(place.observations) if settings.normalize_observations else None
        old = state.observation_moments
        average = settings.criterion == "average"
        collected = Collected(
            self.config.sampling.batch_size,
            returns,
            *map(to_host, place.statistics[1:4]),
            rollout_length=None,
            observations=observed,
            gain=to_host(place.statistics.gain) if average else None,
        )
        path = PathState(
            place.last_observation,
            place.age.astype(np.int64),
            place.running.episode_return.astype(np.float64),
        )
        self.shard.restore(ShardState(path, discounted))
        envs = self.shard.env.num_envs
        moved = place.normalization_kl
        return Results(
            collected,
            float(outputs.reward_scale),
            return_moments,
            Estimated(to_host(outputs.values), critic_fit_of(outputs)),
            outputs.theta,
            outputs.info,
            old if observed is None else old.merge(observed),
            Finished(
                Moments.of_mean(float(place.entropy), envs),
                None if observed is None else Moments.of_mean(float(moved), envs),
                [self.shard.state],
            ),
            clock,
        )

    def _prepare(self, iteration: int, path: PathState | None) -> Prepared:
        shard, critic = self.shard, self.model.critic
        first, paths = self.sampler.randomness(path, iteration)
        states = self.config.sampling.batch_size
        batches = None
        if isinstance(critic, MLPCritic):
            batches = critic.minibatches(states, shard.stream(Purpose.CRITIC_BATCHES, iteration))
        rng = shard.stream(Purpose.FISHER_ROWS, iteration)
        rows = choose_rows(np.ones(states), self.config.step.fisher_fraction, rng)
        return Prepared(iteration, first, Chance(paths, batches, rows.astype(np.int32)))


def build_program(config: TrainConfig, model: Model, shard: Shard, copies: int = 1) -> Program:
    """Return the program of a run.

    Args:
        config: Settings of the run.
        model: Policy and critic.
        shard: Environments and sampler.
        copies: Number of runs that are computed at once, which share cache and memory.
    """
    states, fraction = config.sampling.batch_size, config.step.fisher_fraction
    subset = min(states, num_rows(states, fraction))
    largest = max(SMALLEST_CHUNK, largest_chunk_of(model.policy) // copies)
    assert isinstance(shard.sampler, CompiledPath)
    assert isinstance(model.critic, MLPCritic | None)
    return Program(
        shard.sampler.walker,
        model.critic,
        config.estimation,
        config.step,
        model.moments_shape[-1],
        config.sampling.starts_new_episodes,
        shard.env.max_episode_steps,
        (even_chunk(states, largest), even_chunk(subset, largest)),
        copies,
    )


def learned_of(state: TrainState, config: TrainConfig) -> Learned:
    """Return what training changes, as inputs of the program."""
    moments, enabled = state.observation_moments, config.estimation.normalize_observations
    return Learned(
        state.theta,
        state.critic,
        scaling_of(make_normalizer(moments, enabled=enabled)),
        to_device(moments),
        to_device(state.return_moments),
    )


def schedule_of(config: TrainConfig, model: Model, steps: int) -> Schedule:
    """Return the values that change with the progress of the run."""
    rate = critic_learning_rate(config, steps)
    inputs = step_inputs(config, model.policy, steps)
    return Schedule(inputs, None if rate is None else np.float32(rate))


def critic_fit_of(outputs: Outputs) -> CriticFit | None:
    """Return the critic fit that the program made; warn if it diverged."""
    fit = outputs.place.fit
    if fit is None:
        return None
    if fit.diverged:
        warn_of_divergence(float(fit.loss))
    target = to_host(fit.target)
    loss = Moments.of_mean(float(fit.loss), int(target.count))
    return CriticFit(outputs.critic, loss, to_host(outputs.place.advantage), target)
