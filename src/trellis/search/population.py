"""Plays a population of policies as one batch, with an environment per member and episode.

Every member has its own weights. A layer is a batch of matrix products, (members, episodes, in) @
(members, in, out), each computed separately. A member's actions therefore do not depend on the
other members, bit for bit, and members whose episodes have ended can be left out.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from trellis.blas import one_blas_thread
from trellis.config import TrainConfig
from trellis.envs.batch import BatchEnv
from trellis.moments import Moments
from trellis.policies.masked import MaskedNetwork
from trellis.policies.networks import MLP, unflatten
from trellis.policies.normalizer import Normalizer, make_normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.spaces import Encoder
from trellis.training.build import MakeEnv, Model, env_maker
from trellis.training.reduction import Span, reduce_tree


class Played(NamedTuple):
    """Results of every member in every episode, (members, episodes)."""

    returns: np.ndarray
    """Undiscounted returns of the episodes."""
    lengths: np.ndarray
    """Lengths of the episodes."""
    observations: list[np.ndarray]
    """Encoded observations before each action, not normalized; empty if they were not kept."""


def require_layers(policy: Policy) -> None:
    """Raise a ValueError if the network of the policy is not an `MLP`."""
    network = policy.network
    network = network.network if isinstance(network, MaskedNetwork) else network
    if not isinstance(network, MLP):
        raise ValueError(
            "cem and cma need a policy that is an MLP, without convolutions and memory, got"
            f" {type(network).__name__}: use method trpo"
        )


def member_weights(policy: Policy, thetas: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the network's weights and the free parameters, each with an axis of members.

    Biases and log stds, which are the same for all episodes, also get an axis of episodes.
    """
    weights, free = unflatten(policy.network, thetas)
    return [weight if weight.ndim > 2 else weight[:, None] for weight in weights], free[:, None]


def parameter_scales(policy: Policy) -> np.ndarray:
    """Return the scale of each parameter, (parameters,): 1/√(inputs of its unit).

    With one scale for all, wide layers would saturate before narrow ones change.
    """
    scales, inputs = [], 1
    for shape in policy.network.shapes:
        inputs = shape[0] if len(shape) > 1 else inputs  # A bias goes with the matrix before it.
        scales.append(np.full(math.prod(shape), 1.0 / math.sqrt(inputs)))
    return np.concatenate([*scales, np.ones(policy.distribution.num_free)])


def play_population(
    env: BatchEnv,
    policy: Policy,
    encode: Encoder,
    normalize: Normalizer,
    thetas: np.ndarray,
    seeds: np.ndarray,
    *,
    most_steps: int,
    noise: np.random.Generator | None = None,
    keep_observations: bool = False,
) -> Played:
    """Play one episode from each seed with each member of a population.

    All members start from the same seeds, so that none of them wins by an easier start.

    Args:
        env: Batch with an environment for each pair of member and seed.
        policy: Network and distribution of the members.
        encode: Function from observations to features.
        normalize: Function from features to the policy's inputs.
        thetas: Parameters of the members, (members, parameters).
        seeds: Seeds of the episodes.
        most_steps: Number of steps after which an episode is cut.
        noise: Source of noise for sampled actions; by default actions are the most probable ones.
        keep_observations: Whether to return the observations.
    """
    members, episodes = len(thetas), len(seeds)
    rows, distribution = members * episodes, policy.distribution
    raw = encode(env.reset(np.arange(rows), np.tile(seeds, members)))
    returns, lengths = np.zeros(rows), np.zeros(rows, np.int64)
    active, playing = np.ones(rows, bool), np.arange(members)
    weights, free = member_weights(policy, thetas)
    observations: list[np.ndarray] = []
    with one_blas_thread():
        for _ in range(most_steps):
            still = np.flatnonzero(active.reshape(members, episodes).any(axis=1))
            if 2 * len(still) <= len(playing):  # Rarely, because gathering the weights takes time.
                playing = still
                weights, free = member_weights(policy, thetas[playing])
            if keep_observations:
                observations.append(raw[active])
            observation = normalize(raw).reshape(members, episodes, -1)[playing]
            params = distribution.params(policy.network.apply(weights, observation), free)
            if noise is None:
                chosen = distribution.mode(params)
            else:
                generated = distribution.noise(noise, (members, episodes))
                chosen = distribution.sample(params, generated[playing])
            actions = np.zeros((members, episodes, *chosen.shape[2:]), chosen.dtype)
            actions[playing] = chosen
            step = env.step(actions.reshape(rows, *chosen.shape[2:]), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            active = active & ~(step.terminated | step.truncated)
            if not active.any():
                break
            raw = encode(step.observation)
    shape = (members, episodes)
    return Played(returns.reshape(shape), lengths.reshape(shape), observations)


class Generation(NamedTuple):
    """Results of a generation, shard by shard."""

    returns: list[np.ndarray]
    """Undiscounted returns, (member, episode)."""
    lengths: list[np.ndarray]
    """Lengths of the episodes, (member, episode)."""
    observations: Moments | None
    """Moments of the observations; None if they are not normalized."""


class Population(Protocol):
    """Interface between the search trainer and the shards that play its members."""

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of a generation, a row of `thetas` for each member."""
        ...

    def close(self) -> None:
        """Close environments and release workers."""


class PopulationShard:
    """Plays some members of every generation; it keeps no state between generations.

    The episodes of a member do not depend on the other members. Initial states are the same for all
    members of all shards.

    Args:
        config: Settings of the whole run.
        index: Index of this shard.
        make_env: Function that creates batches; by default from `config.env`.
        model: Policy and encoder of observations.
        length: Number of steps after which an episode is cut.
    """

    def __init__(
        self, config: TrainConfig, index: int, make_env: MakeEnv | None, model: Model, length: int
    ):
        self._config, self._index, self._model, self._length = config, index, model, length
        self._make_env = make_env or env_maker(config)
        self._env: BatchEnv | None = None  # created by the first `play`, which knows its size

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of this shard's members; `thetas` has those of all shards."""
        config, settings, shards = self._config, self._config.search, self._config.sampling.shards
        first, last = (len(thetas) * index // shards for index in (self._index, self._index + 1))
        if self._env is None:
            self._env = self._make_env((last - first) * settings.episodes)
        resets = stream(config.seed, Purpose.RESETS, iteration=iteration)
        noise = stream(config.seed, Purpose.ACTIONS, iteration=iteration, shard=self._index)
        normalized = config.estimation.normalize_observations
        played = play_population(
            self._env,
            self._model.policy,
            self._model.encode,
            make_normalizer(moments, enabled=normalized),
            thetas[first:last],
            resets.integers(2**31, size=settings.episodes),
            most_steps=self._length,
            noise=noise if settings.noisy_actions else None,
            keep_observations=normalized,
        )
        observed = None
        if played.observations:
            shape = self._model.moments_shape
            values = np.concatenate(played.observations)[..., : shape[-1]]  # A mask may follow.
            observed = Moments.of(values, shape)
        return Generation([played.returns], [played.lengths], observed)

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


class LocalPopulation:
    """Shards in this process: all of a run, or those of one node of the reduction tree.

    Args:
        config: Settings of the whole run.
        make_env: Function that creates batches; by default from `config.env`.
        model: Policy and encoder of observations.
        length: Number of steps after which an episode is cut.
        span: Range of shards to hold; all by default.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None,
        model: Model,
        length: int,
        span: Span | None = None,
    ):
        self._span = span or (0, config.sampling.shards)
        self._shards = {
            (index, index + 1): PopulationShard(config, index, make_env, model, length)
            for index in range(*self._span)
        }

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of a generation, a row of `thetas` for each member."""
        played = {k: s.play(thetas, moments, iteration) for k, s in self._shards.items()}
        return reduce_tree(self._span, played)

    def close(self) -> None:
        """Close the environments."""
        for shard in self._shards.values():
            shard.close()
