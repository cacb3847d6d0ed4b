"""Collects single paths of environments that are pure functions, in one compiled scan (Sec. 5.1).

`walk` is the scan: normalize, act, step, keep the final observation, reset what has ended. Noise
and seeds are made beforehand by the streams that `SinglePath` uses, in the same order. So both give
the same samples: the same bits for the same actions, and equal to rounding with the policy in the
loop, which NumPy computes there and XLA here.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.arrays import Array
from trellis.config import SamplingConfig
from trellis.policies.normalizer import Normalizer, Standardizer, standardize
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.environment import Compilable
from trellis.sampling.samples import PathState, Samples
from trellis.spaces import Encoder

SEEDS = 2**31
"""Number of different seeds of episodes."""


class Randomness(NamedTuple):
    """All random numbers of the paths of one iteration."""

    noise: Float[np.ndarray, "time env ..."]
    """Noise of the actions."""
    seeds: Int[np.ndarray, " most_episodes"]
    """Seeds of new episodes, in the order in which episodes end."""


class Paths(NamedTuple):
    """Paths of one iteration, (time, environment) in every array."""

    observation: Float[Array, "time env features"]
    """Normalized observation that the policy acted on."""
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
    next_observation: Float[Array, "time env features"]
    """Normalized observation after the step, before a reset."""


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


def walk(
    walker: Walker, theta: Array, scaling: tuple[Array, Array] | None, rows: Any, random: Randomness
) -> tuple[Any, Paths]:
    """Advance all environments by as many steps as there is noise.

    Args:
        walker: Policy and environments.
        theta: Parameters of the policy.
        scaling: Mean and factor that standardize observations; None leaves them unchanged.
        rows: State of the environments.
        random: Noise and seeds.

    Returns:
        The rows after the last step, and the paths.
    """
    policy, distribution = walker.policy, walker.policy.distribution

    def normalize(raw: Array) -> Array:
        return raw if scaling is None else standardize(raw, *scaling)

    def advance(carry: tuple[Any, Array], noise: Array) -> tuple[tuple[Any, Array], Paths]:
        rows, used = carry
        raw = walker.encode(rows.observation)
        observation = normalize(raw)
        params, _ = policy.distribution_params(theta, observation)
        action = distribution.sample(params, noise)
        moved, (reward, terminated, truncated) = walker.functions.step(
            rows, walker.map_actions(action)
        )
        ended = terminated | truncated
        order = jnp.cumsum(ended.astype(jnp.int32))
        seed = random.seeds[used + order - 1].astype(jnp.uint32)
        key = jnp.stack([jnp.zeros_like(seed), seed], axis=-1)
        path = Paths(
            observation,
            raw,
            action,
            distribution.log_prob(params, action),
            reward,
            terminated,
            truncated,
            rows.elapsed,
            normalize(walker.encode(moved.observation)),
        )
        return (walker.functions.reset(moved, ended, key), used + order[-1]), path

    (rows, _), paths = jax.lax.scan(advance, (rows, jnp.zeros((), jnp.int32)), random.noise)
    return rows, paths


compiled_walk = jax.jit(walk, static_argnums=0)


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
        self._env, self._encode = env, encode
        self.walker = Walker(policy, env.functions, encode, env.map_actions)
        self._steps, self._new_episodes = sampling.path_length, sampling.starts_new_episodes
        self._seed, self._shard = seed, shard

    def prepare(self, state: PathState | None, iteration: int) -> tuple[PathState, Randomness]:
        """Start new episodes if they are due, and make the random numbers of an iteration.

        Args:
            state: State that the previous call of `collect` returned, or None.
            iteration: Index of the iteration, which selects the random streams.
        """
        resets, actions = (
            stream(self._seed, purpose, iteration=iteration, shard=self._shard)
            for purpose in (Purpose.RESETS, Purpose.ACTIONS)
        )
        shape = self._steps, self._env.num_envs
        if state is None or self._new_episodes:
            ids = np.arange(self._env.num_envs)
            first = self._encode(self._env.reset(ids, resets.integers(SEEDS, size=len(ids))))
            state = PathState(first, np.zeros(len(ids), np.int64), np.zeros(len(ids)))
        seeds = resets.integers(SEEDS, size=shape[0] * shape[1])
        noise = self.walker.policy.distribution.noise(actions, shape)
        return state, Randomness(noise, seeds.astype(np.int32))

    def collect(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        """Collect the samples of one iteration; see `SinglePath.collect`."""
        state, random = self.prepare(state, iteration)
        rows, paths = compiled_walk(
            self.walker, theta, scaling_of(normalize), self._env.rows, random
        )
        self._env.rows = rows
        paths = Paths(*(np.asarray(values) for values in paths))
        self.check(paths)
        raw = self._encode(jax.tree.map(np.asarray, rows.observation))
        returns, running = episode_returns(paths, state.episode_return)
        samples = to_samples(paths, normalize(raw), returns)
        return samples, PathState(raw, np.asarray(rows.elapsed, np.int64), running)

    def check(self, paths: Paths) -> None:
        """Raise the error of the first observation or reward that is not finite."""
        for what, values in (("observation", paths.raw_observation), ("reward", paths.reward)):
            if not np.isfinite(values).all():
                for row in values:
                    self._env.check_finite(what, row)


def scaling_of(normalize: Normalizer) -> tuple[np.ndarray, np.ndarray] | None:
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


def to_samples(paths: Paths, last_observation: np.ndarray, episode_return: np.ndarray) -> Samples:
    """Return paths in the form of all samplers, with final observations of ended episodes only.

    Args:
        paths: The paths, as NumPy arrays.
        last_observation: Normalized observations after the last step, or after its reset.
        episode_return: Return of each episode that ended.
    """
    ended = np.asarray(paths.terminated | paths.truncated)
    age = np.asarray(paths.age, np.int64)
    return Samples(
        observation=paths.observation,
        raw_observation=paths.raw_observation,
        action=paths.action,
        log_q=paths.log_q,
        reward=np.asarray(paths.reward, np.float64),
        terminated=paths.terminated,
        truncated=paths.truncated,
        age=age,
        final_at=np.argwhere(ended),
        final_observation=paths.next_observation[ended],
        last_observation=last_observation,
        episode_return=episode_return,
        episode_length=age[ended] + 1,
    )
