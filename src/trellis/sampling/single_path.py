"""Implements the single path sampler: trajectories from ρ₀ under π_θold (Sec. 5.1).

All environments make the same number of steps. When an episode ends, the next one starts. By
default, episodes continue from one iteration to the next. With `whole_paths` each iteration starts
from ρ₀, as in the paper: one environment per path, and a path's length in steps. A new path
replaces one that ends early, so the number of simulator steps is fixed.

The policy runs in NumPy beside the simulator, because for networks of this size a call into a
compiled program costs more than the arithmetic. Some batches have several lanes (groups of
environments). Either each lane has a thread of its own (`lanes.py`), or the policy acts in one lane
while the others step.
"""

import functools

import numpy as np
from jaxtyping import Float

from trellis.blas import one_blas_thread
from trellis.config import SamplingConfig
from trellis.policies.normalizer import Normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.buffers import RolloutBuffer
from trellis.sampling.environment import (
    Divisible,
    Lanes,
    Segmented,
    SegmentSteps,
    Steppable,
    Transition,
)
from trellis.sampling.lanes import Lookout, join_samples, join_states, run_lanes, state_of_lane
from trellis.sampling.samples import PathState, Samples
from trellis.spaces import Encoder

SEEDS_AT_ONCE = 64
"""Number of seeds that are sampled together."""


class SinglePath:
    """Collects `sampling.path_length` time steps from each environment of a batch.

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
        env: Steppable,
        policy: Policy,
        encode: Encoder,
        sampling: SamplingConfig,
        *,
        seed: int = 0,
        shard: int = 0,
    ):
        self._env, self._policy, self._encode = env, policy, encode
        self._steps, self._new_episodes = sampling.path_length, sampling.starts_new_episodes
        self._seed, self._shard = seed, shard

    def collect(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        """Collect the samples of one iteration.

        Args:
            theta: Parameters of the policy.
            normalize: Function from encoded observations to the policy's inputs.
            state: State that the previous call returned, or None to start new episodes.
            iteration: Index of the iteration, which selects the random streams.

        Returns:
            The samples, and the state for the next iteration.
        """
        resets = _Seeds(self._stream(Purpose.RESETS, iteration))
        num_envs = self._env.num_envs
        noise = self._policy.distribution.noise(
            self._stream(Purpose.ACTIONS, iteration), (self._steps, num_envs)
        )
        with one_blas_thread():
            if state is None or self._new_episodes:
                ids = np.arange(num_envs)
                first = self._encode(self._env.reset(ids, resets.next(len(ids))))
                zeros = np.zeros(num_envs, np.int64), np.zeros(num_envs)
                state = PathState(first, *zeros, self._policy.initial_carry(num_envs))
            if isinstance(self._env, Divisible) and len(self._env.divided) > 1:
                return self._collect_lanes(self._env, theta, normalize, state, noise, iteration)
            return self._collect(self._env, theta, normalize, state, noise, resets, Lookout())

    def _collect_lanes(
        self,
        env: Divisible,
        theta: np.ndarray,
        normalize: Normalizer,
        state: PathState,
        noise: np.ndarray,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        """Collect every lane in a thread of its own and return all samples together."""
        lookout, calls = Lookout(), []
        for index, (rows, lane) in enumerate(env.divided):
            lane.restore(np.arange(lane.num_envs), env.snapshot(np.arange(rows.start, rows.stop)))
            resets = _Seeds(self._stream(Purpose.RESETS, iteration, lane=index))
            part = state_of_lane(state, rows), noise[:, rows], resets, lookout
            calls.append(functools.partial(self._collect, lane, theta, normalize, *part))
        parts = run_lanes(calls, lookout, threads=env.lane_threads)
        for rows, lane in env.divided:
            snapshot = lane.snapshot(np.arange(lane.num_envs))
            env.restore(np.arange(rows.start, rows.stop), snapshot)
        samples, states = zip(*parts, strict=True)
        return join_samples(samples), join_states(states)

    def _collect(
        self,
        env: Steppable,
        theta: np.ndarray,
        normalize: Normalizer,
        state: PathState,
        noise: np.ndarray,
        resets: "_Seeds",
        lookout: Lookout,
    ) -> tuple[Samples, PathState]:
        """Collect the samples of a batch, or of one lane, in this thread."""
        policy, distribution, encode = self._policy, self._policy.distribution, self._encode
        weights, free = policy.unflatten(theta)
        segment = None
        # A wrapper that passes on attributes has its own way to step, so its type counts.
        if isinstance(env, Segmented) and hasattr(type(env), "segment"):
            segment = env.segment(self._steps)
        lanes = env if isinstance(env, Lanes) else _OneLane(env.num_envs, segment or env)
        buffer = RolloutBuffer(state, self._steps, normalize)
        for t in range(self._steps + 1):
            lookout.check()
            for index, lane in enumerate(lanes.lanes):
                if t > 0:
                    step = lanes.receive(index)
                    ended = buffer.add_step(t - 1, lane, encode(step.observation), step)
                    if len(ended):
                        first = encode(env.reset(ended, resets.next(len(ended))))
                        buffer.start_episodes(ended, first)
                if t < self._steps:
                    inputs, carry = buffer.gather(t, lane), buffer.carry(lane)
                    outputs, carry = policy.advance(weights, inputs, carry)
                    params = distribution.params(outputs, free)
                    action = distribution.sample(params, noise[t, lane])
                    buffer.add_action(t, lane, outputs, action, carry)
                    lanes.send(index, action)
        return buffer.samples(distribution, free, segment), buffer.state

    def _stream(
        self, purpose: Purpose, iteration: int, lane: int | None = None
    ) -> np.random.Generator:
        return stream(self._seed, purpose, iteration=iteration, shard=self._shard, lane=lane)


class _Seeds:
    """Seeds of new episodes from a stream, sampled many at a time because a call costs more.

    Args:
        rng: The stream.
    """

    def __init__(self, rng: np.random.Generator):
        self._rng, self._waiting = rng, np.zeros(0, np.int64)

    def next(self, count: int) -> np.ndarray:
        """Return the next seeds; they do not depend on how many are asked for at a time."""
        if count > len(self._waiting):
            more = self._rng.integers(2**31, size=max(count, SEEDS_AT_ONCE))
            self._waiting = np.concatenate([self._waiting, more])
        seeds, self._waiting = self._waiting[:count], self._waiting[count:]
        return seeds


class _OneLane:
    """All environments of a batch as one lane."""

    def __init__(self, num_envs: int, env: Steppable | SegmentSteps):
        self._env = env
        self.lanes = (slice(0, num_envs),)

    def send(self, _: int, actions: np.ndarray) -> None:
        self._actions = actions

    def receive(self, _: int) -> Transition:
        return self._env.step(self._actions)
