"""Collects single paths of environments that are pure functions, in one compiled scan (Sec. 5.1).

`walk` is the scan: normalize, act, step, keep the final observation, reset what has ended. Noise
and seeds are made beforehand by the streams that `SinglePath` uses, in the same order. So both give
the same samples: the same bits for the same actions, and equal to rounding with the policy in the
loop, which NumPy computes there and XLA here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.arrays import Array
from trellis.config import SamplingConfig
from trellis.masks import has_choices
from trellis.policies.normalizer import Normalizer, Standardizer, standardize
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.environment import Compilable
from trellis.sampling.samples import PathState, Samples
from trellis.spaces import Encoder

SEEDS = 2**31
"""Number of different seeds of episodes."""
Scaling = tuple[Array, Array]
"""Mean and factor that standardize observations."""


class Randomness(NamedTuple):
    """All random numbers of the paths of one iteration."""

    noise: Float[np.ndarray, "time env ..."]
    """Noise of the actions."""
    seeds: Int[np.ndarray, " most_episodes"]
    """Seeds of new episodes, in the order in which episodes end."""


class Paths(NamedTuple):
    """Paths of one iteration, (time, environment) in every array."""

    raw_observation: Float[Array, "time env features"]
    """Encoded observation before normalization."""
    action: Shaped[Array, "time env ..."]
    """Action that the policy sampled, not clipped."""
    log_q: Float[Array, "time env"]
    """log q(a|s) of the action."""
    reward: Float[Array, "time env"]
    """Reward of the step."""
    terminated: Bool[Array, "time env"]
    """Whether the step ended its episode in a terminal state."""
    truncated: Bool[Array, "time env"]
    """Whether the step ended its episode early."""
    age: Int[Array, "time env"]
    """Time step within the episode."""
    final: Any
    """What `KeepFinal` keeps of the observation after the step, before a reset."""

    @property
    def ended(self) -> Bool[Array, "time env"]:
        """Whether the step ended its episode, by termination or by truncation."""
        return self.terminated | self.truncated


KeepFinal = Callable[[Array, Array], Any]
"""Function of the normalized observations after a step, and of which of them are of a truncated
episode; it returns what the paths keep. Most of them are seen again as the next observation."""


@dataclasses.dataclass(frozen=True)
class Walker:
    """What a scan of paths consists of; a static argument of compiled functions."""

    policy: Policy
    """The policy that acts."""
    functions: Any
    """Functions that reset and step the environments."""
    encode: Encoder
    """Function from observations to features."""
    map_actions: Any
    """Function from actions of the policy to actions of the environments."""
    masked_factors: tuple[int, ...] = ()
    """Sizes of the factors of an action; empty if observations have no action masks."""

    @classmethod
    def of(cls, env: Compilable, policy: Policy, encode: Encoder) -> "Walker":
        """Return the scan of a policy in a batch of environments."""
        return cls(policy, env.functions, encode, env.map_actions, env.masked_factors)

    def mask_of(self, encoded: Array) -> Array:
        """Return the action masks that encoded observations (..., features) end with."""
        return encoded[..., encoded.shape[-1] - sum(self.masked_factors) :]

    def is_usable(self, encoded: Array) -> Array:
        """Return whether encoded observations are finite and allow an action, (...)."""
        finite = jnp.isfinite(encoded).all(axis=-1)
        if not self.masked_factors:
            return finite
        return finite & has_choices(self.mask_of(encoded), self.masked_factors)


Carry = tuple[Any, Array]
"""Rows, and the number of seeds of new episodes that are used."""
Advance = Callable[[Carry, Array], tuple[Carry, Paths]]
"""One step of a scan: a function of the carry and of the noise of the actions."""


def walk(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    rows: Any,
    random: Randomness,
    keep_final: KeepFinal = lambda observation, truncated: observation,
) -> tuple[Any, Paths]:
    """Advance all environments by as many steps as there is noise.

    Args:
        walker: Policy and environments.
        theta: Parameters of the policy.
        scaling: Mean and factor that standardize observations; None leaves them unchanged.
        rows: State of the environments.
        random: Noise and seeds.
        keep_final: What to keep of final observations. Default: all of every observation.

    Returns:
        The rows after the last step, and the paths.
    """
    advance = advance_with(walker, theta, scaling, random.seeds, keep_final)
    (rows, _), paths = jax.lax.scan(advance, (rows, jnp.zeros((), jnp.int32)), random.noise)
    return rows, paths


def advance_with(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    seeds: Int[Array, " most_episodes"],
    keep_final: KeepFinal = lambda observation, truncated: observation,
) -> Advance:
    """Return the function that advances all environments by one step; see `walk`."""
    policy, distribution = walker.policy, walker.policy.distribution

    def advance(carry: Carry, noise: Array) -> tuple[Carry, Paths]:
        rows, used = carry
        raw = walker.encode(rows.observation)
        observation = scaled(raw, scaling)
        params, _ = policy.distribution_params(theta, observation)
        action = distribution.sample(params, noise)
        moved, (reward, terminated, truncated) = walker.functions.step(
            rows, walker.map_actions(action)
        )
        ended = terminated | truncated
        order = jnp.cumsum(ended.astype(jnp.int32))
        path = Paths(
            raw,
            action,
            distribution.log_prob(params, action),
            reward,
            terminated,
            truncated,
            rows.elapsed,
            keep_final(scaled(walker.encode(moved.observation), scaling), truncated),
        )
        key = keys_of(seeds[used + order - 1])
        return (walker.functions.reset(moved, ended, key), used + order[-1]), path

    return advance


def keys_of(seeds: Int[Array, " env"]) -> Array:
    """Return the raw keys of seeds below 2³², (env, 2), like `jax.random.PRNGKey` of each."""
    seeds = seeds.astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(seeds), seeds], axis=-1)


compiled_walk = jax.jit(walk, static_argnums=(0, 5))


def scaled(raw: Array, scaling: Scaling | None) -> Array:
    """Return standardized observations; without a scaling, they stay unchanged."""
    return raw if scaling is None else standardize(raw, *scaling)


class CompiledPath:
    """Single path for environments that are pure functions; like `SinglePath`, but compiled.

    Args:
        env: Batch of environments.
        policy: The policy that acts.
        encode: Function from observations to features.
        sampling: Settings of the sampler.
        seed: Seed of the run.
        shard: Index of this sampler's shard; together with the seed it selects the random streams.
    """

    def __init__(
        self,
        env: Compilable,
        policy: Policy,
        encode: Encoder,
        sampling: SamplingConfig,
        *,
        seed: int = 0,
        shard: int = 0,
    ):
        self.env, self._encode = env, encode
        self.walker = Walker.of(env, policy, encode)
        self._steps, self._new_episodes = sampling.path_length, sampling.starts_new_episodes
        self._seed, self._shard = seed, shard

    def randomness(self, state: PathState | None, iteration: int) -> tuple[Any, Randomness]:
        """Return the seeds of new episodes, None if none are due, and all other random numbers.

        Args:
            state: State that the previous call of `collect` returned, or None.
            iteration: Index of the iteration, which selects the random streams.
        """
        resets, actions = (
            stream(self._seed, purpose, iteration=iteration, shard=self._shard)
            for purpose in (Purpose.RESETS, Purpose.ACTIONS)
        )
        shape, first = (self._steps, self.env.num_envs), None
        if state is None or self._new_episodes:
            first = resets.integers(SEEDS, size=self.env.num_envs)
        seeds = resets.integers(SEEDS, size=shape[0] * shape[1])
        noise = self.walker.policy.distribution.noise(actions, shape)
        return first, Randomness(noise, seeds.astype(np.int32))

    def start_episodes(self, seeds: Int[np.ndarray, " env"]) -> PathState:
        """Start new episodes with these seeds in all environments."""
        ids = np.arange(self.env.num_envs)
        first = self._encode(self.env.reset(ids, seeds))
        return PathState(first, np.zeros(len(ids), np.int64), np.zeros(len(ids)))

    def collect(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        """Collect the samples of one iteration; see `SinglePath.collect`."""
        seeds, random = self.randomness(state, iteration)
        if state is None or seeds is not None:
            state = self.start_episodes(seeds)
        rows, paths = self._walk(theta, scaling_of(normalize), random)
        self.env.rows = rows
        paths = Paths(*(np.asarray(values) for values in paths))
        for what, values in (("observation", paths.raw_observation), ("reward", paths.reward)):
            if not np.isfinite(values).all():
                for row in values:
                    self.env.check_finite(what, row)
        if self.walker.masked_factors:
            for row in self.walker.mask_of(paths.raw_observation):
                self.env.check_masks(row)
        raw = self._encode(jax.tree.map(np.asarray, rows.observation))
        returns, running = episode_returns(paths, state.episode_return)
        samples = to_samples(paths, normalize, raw, returns)
        return samples, PathState(raw, np.asarray(rows.elapsed, np.int64), running)

    def _walk(
        self, theta: np.ndarray, scaling: Scaling | None, random: Randomness
    ) -> tuple[Any, Paths]:
        """Advance the environments; return their rows after the last step, and the paths."""
        return compiled_walk(self.walker, theta, scaling, self.env.rows, random)


def scaling_of(normalize: Normalizer) -> Scaling | None:
    """Return mean and factor of a normalizer of vectors; None if it changes nothing."""
    return (normalize.mean, normalize.factor) if isinstance(normalize, Standardizer) else None


def episode_returns(
    paths: Paths, running: Float[np.ndarray, " env"]
) -> tuple[Float[np.ndarray, " episode"], Float[np.ndarray, " env"]]:
    """Return the return of each episode that ended, and the sum of each that has not.

    Args:
        paths: The paths.
        running: Sum of rewards of each environment before the first step.
    """
    running, finished = running.copy(), [np.zeros(0)]
    ends = np.asarray(paths.terminated | paths.truncated)
    for reward, ended in zip(np.asarray(paths.reward), ends, strict=True):
        running += reward
        if ended.any():
            finished.append(running[ended])
            running[ended] = 0.0
    return np.concatenate(finished), running


def to_samples(
    paths: Paths, normalize: Normalizer, last: np.ndarray, episode_return: np.ndarray
) -> Samples:
    """Return paths in the form of all samplers, with final observations of ended episodes only.

    Args:
        paths: The paths, as NumPy arrays.
        normalize: Function from encoded observations to the policy's inputs.
        last: Encoded observations after the last step, or after its reset.
        episode_return: Return of each episode that ended.
    """
    ended = np.asarray(paths.terminated | paths.truncated)
    age = np.asarray(paths.age, np.int64)
    return Samples(
        observation=normalize(paths.raw_observation),
        raw_observation=paths.raw_observation,
        action=paths.action,
        log_q=paths.log_q,
        reward=np.asarray(paths.reward, np.float64),
        terminated=paths.terminated,
        truncated=paths.truncated,
        age=age,
        final_at=np.argwhere(ended),
        final_observation=paths.final[ended],
        last_observation=normalize(last),
        episode_return=episode_return,
        episode_length=age[ended] + 1,
    )
