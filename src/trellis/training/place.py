"""The environments of one place of a compiled iteration: a shard with its random numbers.

A run on one device has one place. On several devices each holds the environments of one shard, and
statistics of the places merge like those of shards.
"""

from typing import Any, NamedTuple

import numpy as np

from trellis.config import TrainConfig
from trellis.estimation.compiled import Fit, Running
from trellis.estimation.critic import MLPCritic, warn_of_divergence
from trellis.estimation.device_moments import to_host
from trellis.estimation.estimates import CriticFit
from trellis.moments import Moments
from trellis.optimization.fisher import choose_rows
from trellis.rng import Purpose
from trellis.sampling.compiled import CompiledPath
from trellis.sampling.first_invalid import raise_invalid
from trellis.sampling.samples import PathState
from trellis.training.program_parts import Chance, PlaceOutputs
from trellis.training.shard import Collected, Finished, Shard, ShardState


class Inputs(NamedTuple):
    """Inputs of the program that belong to one place, besides its environments."""

    running: Running
    """Sums along the episodes."""
    chance: Chance
    """Streams of random numbers."""
    started: bool
    """Whether new episodes have started, in environments that the batch holds."""


class PlaceResults(NamedTuple):
    """Results of one place, which merge with those of others."""

    collected: Collected
    """Statistics of the paths."""
    critic_fit: CriticFit | None
    """The critic fit; None without a critic."""
    finished: Finished
    """Entropy, and the state of the shard."""


class _Prepared(NamedTuple):
    iteration: int
    first_seeds: np.ndarray | None
    chance: Chance


class Place:
    """A shard whose iterations are compiled.

    Args:
        config: Settings of the whole run.
        shard: The shard, with a compiled sampler.
    """

    def __init__(self, config: TrainConfig, shard: Shard):
        assert isinstance(shard.sampler, CompiledPath)
        self.shard, self.sampler = shard, shard.sampler
        self._config, self._part = config, config.sampling.part
        self._prepared: _Prepared | None = None

    @property
    def rows(self) -> Any:
        """Environments that the batch holds."""
        return self.sampler.env.rows

    @rows.setter
    def rows(self, rows: Any) -> None:
        self.sampler.env.rows = rows

    def inputs(self, iteration: int) -> Inputs:
        """Return the inputs of the program, after new episodes have started if they are due."""
        prepared, (path, discounted_return, _) = self._prepared, self.shard.state
        starts = path is None or self._part.starts_new_episodes
        usable = prepared is not None and prepared.iteration == iteration
        if prepared is None or not usable or starts is (prepared.first_seeds is None):
            prepared = self._prepare(iteration, path)
        if prepared.first_seeds is not None:
            path = self.sampler.start_episodes(prepared.first_seeds)
        assert path is not None
        sums = discounted_return, path.episode_return
        running = Running(*(np.asarray(values, np.float32) for values in sums))
        return Inputs(running, prepared.chance, starts)

    def prepare(self, iteration: int) -> None:
        """Make the random numbers of an iteration beforehand, while the device computes another."""
        self._prepared = self._prepare(iteration, PathState(*[np.zeros(0)] * 3))

    def _prepare(self, iteration: int, path: PathState | None) -> _Prepared:
        shard, critic, states = self.shard, self.shard.model.critic, self._part.batch_size
        first, paths = self.sampler.randomness(path, iteration)
        batches = None
        if isinstance(critic, MLPCritic):
            batches = critic.minibatches(states, shard.stream(Purpose.CRITIC_BATCHES, iteration))
        rng, step = shard.stream(Purpose.FISHER_ROWS, iteration), self._config.step
        rows = choose_rows(np.ones(states), step.fisher_fraction, rng, self._config.sampling.shards)
        return _Prepared(iteration, first, Chance(paths, batches, rows.astype(np.int32)))

    def results(self, outputs: PlaceOutputs, critic: dict[str, np.ndarray]) -> PlaceResults:
        """Return the results of an iteration, and let the shard continue from its end.

        Args:
            outputs: Outputs of this place on the host.
            critic: State of the fitted critic.

        Raises:
            BadValueError: An observation or a reward is not finite, or a mask allows no action.
        """
        raise_invalid(self.sampler.env, self.sampler.walker, outputs.invalid)
        settings = self._config.estimation
        scales, normalizes = settings.normalize_rewards, settings.normalize_observations
        discounted_return = self.shard.state.discounted_return
        if scales:
            discounted_return = outputs.running.discounted_return.astype(np.float64)
        statistics, average = outputs.statistics, settings.criterion == "average"
        collected = Collected(
            self._part.batch_size,
            to_host(statistics.returns) if scales else None,
            *map(to_host, statistics[1:4]),
            rollout_length=None,
            observations=to_host(outputs.observations) if normalizes else None,
            gain=to_host(statistics.gain) if average else None,
        )
        episode_return = outputs.running.episode_return.astype(np.float64)
        path = PathState(outputs.last_observation, outputs.age.astype(np.int64), episode_return)
        self.shard.restore(ShardState(path, discounted_return))
        envs, moved = self.sampler.env.num_envs, float(outputs.normalization_kl)
        finished = Finished(
            Moments.of_mean(float(outputs.entropy), envs),
            Moments.of_mean(moved, envs) if normalizes else None,
            [self.shard.state],
        )
        return PlaceResults(collected, critic_fit_of(outputs.fit, outputs, critic), finished)


def critic_fit_of(
    fit: Fit | None, outputs: PlaceOutputs, critic: dict[str, np.ndarray]
) -> CriticFit | None:
    """Return the critic fit that the program made; warn if it diverged."""
    if fit is None:
        return None
    if fit.diverged:
        warn_of_divergence(float(fit.loss))
    target = to_host(fit.target)
    loss = Moments.of_mean(float(fit.loss), int(target.count))
    return CriticFit(critic, loss, to_host(outputs.advantage), target)
