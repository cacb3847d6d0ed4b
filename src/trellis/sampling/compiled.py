"""Collects single paths of environments that are pure functions, in one compiled scan (Sec. 5.1).

Noise and seeds are made beforehand by the streams that `SinglePath` uses, in the same order. So
both give the same samples: the same bits for the same actions, and equal to rounding with the
policy in the loop, which NumPy computes there and XLA here.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from trellis.config import SamplingConfig
from trellis.policies.normalizer import Normalizer, Standardizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.environment import Compilable
from trellis.sampling.first_invalid import compiled_first_invalid, raise_invalid
from trellis.sampling.samples import PathState, Samples
from trellis.sampling.scan import Paths, Randomness, Scaling, Walker, compiled_walk
from trellis.spaces import Encoder

SEEDS = 2**31
"""Number of different seeds of episodes."""


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
        raise_invalid(self.env, self.walker, compiled_first_invalid(self.walker, paths))
        self.env.rows = rows
        paths = Paths(*(np.asarray(values) for values in paths))
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
