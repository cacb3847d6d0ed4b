"""A population of policies played as one batch of environments: a row per member and episode.

Every member has weights of its own, so a layer is a batch of matrix products, (members, episodes,
in) @ (members, in, out), each computed by itself: a member's actions do not depend, to the bit, on
who plays beside it. That is why, unlike elsewhere, members that have ended may be left out.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from trellis.blas import one_blas_thread
from trellis.config import TrainConfig
from trellis.envs.batch import BatchEnv
from trellis.moments import Moments
from trellis.policies.networks import MLP, unflatten
from trellis.policies.normalizer import Normalizer, make_normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.spaces import Encoder
from trellis.training.build import MakeEnv, Model, env_maker
from trellis.training.reduction import Span, reduce_tree


class Played(NamedTuple):
    """What became of every member in every episode, (members, episodes)."""

    returns: np.ndarray
    """Undiscounted returns of the episodes."""
    lengths: np.ndarray
    """Lengths of the episodes."""
    observations: list[np.ndarray]
    """Encoded observations before each action, not normalized; empty unless asked for."""


def require_layers(policy: Policy) -> None:
    """Raise a ValueError if the network is not known to be a stack of matrix products."""
    if not isinstance(policy.network, MLP):
        raise ValueError(
            "cem and cma play a whole population at once, which works for MLP networks alone, not"
            f" for {type(policy.network).__name__}: use trpo, or an MLP"
        )


def member_weights(policy: Policy, thetas: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the network's weights and the free parameters, each with an axis of members.

    What is added to every episode alike (biases, log stds) gets an axis for the episodes.
    """
    weights, free = unflatten(policy.network, thetas)
    return [weight if weight.ndim > 2 else weight[:, None] for weight in weights], free[:, None]


def parameter_scales(policy: Policy) -> np.ndarray:
    """Return the scale of each parameter, (parameters,): 1/√(inputs of its unit).

    One scale for all would drive wide layers into saturation before it moves narrow ones.
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
    """Play one episode from each seed for each row of `thetas`, of at most `most_steps` steps.

    `env` has a row for each pair. All members meet the same seeds, so that none of them wins by an
    easier start. Actions are the most probable ones, or sampled with `noise`.
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
            if 2 * len(still) <= len(playing):  # Not at each end: weights have to be gathered.
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
    """What became of a generation, shard by shard."""

    returns: list[np.ndarray]
    """Undiscounted returns, (member, episode)."""
    lengths: list[np.ndarray]
    """Lengths of the episodes, (member, episode)."""
    observations: Moments | None
    """Moments of the observations, if they are normalized."""


class Population(Protocol):
    """What the trainer asks of those who play the members."""

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of a generation, a row of `thetas` for each member."""
        ...

    def close(self) -> None:
        """Close environments and release workers."""


class PopulationShard:
    """Plays some members of every generation; it keeps nothing between two.

    A member's episodes do not depend on who plays beside it. Initial states are the same for every
    member of every shard.
    """

    def __init__(
        self, config: TrainConfig, index: int, make_env: MakeEnv | None, model: Model, length: int
    ):
        self._config, self._index, self._model, self._length = config, index, model, length
        self._make_env = make_env or env_maker(config)
        self._env: BatchEnv | None = None  # made when it is known for how many

    def play(self, thetas: np.ndarray, moments: Moments, iteration: int) -> Generation:
        """Play the episodes of this shard's part of a generation."""
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
            values = np.concatenate(played.observations)
            observed = Moments.of(values, self._model.moments_shape)
        return Generation([played.returns], [played.lengths], observed)

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


class LocalPopulation:
    """Shards in this process: all of a run, or those of one node of the reduction tree."""

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
