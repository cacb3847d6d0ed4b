"""A shard of a search by CEM or CMA: it plays its part of a generation.

A member's episodes do not depend on who plays beside it, so members are dealt out by their order.
Like other shards it draws from streams of its own, where actions are drawn at all; the initial
states are the same for every member of every shard.
"""

from typing import Any, NamedTuple

import numpy as np

from trellis import envs
from trellis.config import TrainConfig
from trellis.envs.spaces import moments_shape, observation_encoder
from trellis.estimation.normalization import Moments, moments_of
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.search.population import play
from trellis.training.build import MakeEnv, build_policy, env_from_catalog
from trellis.training.shard import normalizer


class Generation(NamedTuple):
    """What became of the members, (members, episodes), shard by shard."""

    returns: list[np.ndarray]
    lengths: list[np.ndarray]
    observations: Moments | None
    """Where observations are normalized by them."""


class PopulationShard:
    """Plays some members of every generation; it keeps nothing between two."""

    def __init__(
        self,
        config: TrainConfig,
        index: int = 0,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
    ):
        self._config, self._index = config, index
        self._make_env = make_env or env_from_catalog(config)
        self._policy = policy
        self._env: envs.BatchEnv | None = None  # made when it is known for how many

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """The episodes of this shard's rows of `thetas`, those of the whole generation."""
        config, settings, shards = self._config, self._config.search, self._config.sampling.shards
        first, last = (len(thetas) * index // shards for index in (self._index, self._index + 1))
        if self._env is None:
            self._env = self._make_env((last - first) * settings.episodes)
        env = self._env
        features, encode = observation_encoder(env.observation_space)
        resets = stream(config.seed, Purpose.RESETS, iteration=iteration)
        noise = stream(config.seed, Purpose.ACTIONS, iteration=iteration, shard=self._index)
        length = settings.path_length or env.max_episode_steps
        assert length is not None  # The trainer saw to it.
        played = play(
            env,
            self._policy or build_policy(config, features, env),
            encode,
            normalizer(config, moments),
            thetas[first:last],
            resets.integers(2**31, size=settings.episodes),
            most_steps=length,
            noise=noise if settings.noisy_actions else None,
            keep_observations=config.estimation.normalize_observations,
        )
        seen = None
        if played.observations:
            seen = moments_of(np.concatenate(played.observations), moments_shape(features))
        return Generation([played.returns], [played.lengths], seen)

    def stand(self, standing: Any) -> None:
        """Every generation begins from ρ₀."""

    def rows(self) -> None:
        """Nothing of the environments goes on."""

    def close(self) -> None:
        """Lets go of the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None
