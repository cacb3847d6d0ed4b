"""Implements the single path sampler: trajectories from ρ₀ under π_θold (Sec. 5.1).

All environments make the same number of steps. When an episode ends, the next one starts. By
default, episodes continue from one iteration to the next. With `whole_paths` each iteration starts
from ρ₀, as in the paper: one environment per path, and a path's length in steps. A new path
replaces one that ends early, so the number of simulator steps is fixed.

The policy runs in NumPy beside the simulator, because for networks of this size a call into a
compiled program costs more than the arithmetic. Some batches have several lanes (groups of
environments): the policy acts in one lane while the others step.
"""

import numpy as np
from jaxtyping import Float

from trellis.blas import one_blas_thread
from trellis.config import SamplingConfig
from trellis.policies.normalizer import Normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.buffers import RolloutBuffer
from trellis.sampling.environment import Lanes, Steppable, StepResult
from trellis.sampling.samples import PathState, Samples
from trellis.spaces import Encoder


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
        self._lanes = env if isinstance(env, Lanes) else _OneLane(env)
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
        resets = stream(self._seed, Purpose.RESETS, iteration=iteration, shard=self._shard)
        actions = stream(self._seed, Purpose.ACTIONS, iteration=iteration, shard=self._shard)
        policy, distribution = self._policy, self._policy.distribution
        num_envs = self._env.num_envs
        noise = distribution.noise(actions, (self._steps, num_envs))
        weights, free = self._policy.unflatten(theta)

        def reset(ids: np.ndarray) -> np.ndarray:
            seeds = resets.integers(2**31, size=len(ids))
            return self._encode(self._env.reset(ids, seeds))

        with one_blas_thread():
            if state is None or self._new_episodes:
                first = reset(np.arange(num_envs))
                zeros = np.zeros(num_envs, np.int64), np.zeros(num_envs)
                state = PathState(first, *zeros, policy.initial_carry(num_envs))
            buffer = RolloutBuffer(state, self._steps, normalize)
            for t in range(self._steps + 1):
                for index, lane in enumerate(self._lanes.lanes):
                    if t > 0:
                        step = self._lanes.receive(index)
                        ended = buffer.add_step(t - 1, lane, self._encode(step.observation), step)
                        if len(ended):
                            buffer.start_episodes(ended, reset(ended))
                    if t < self._steps:
                        inputs, carry = buffer.gather(t, lane), buffer.carry(lane)
                        outputs, carry = policy.advance(weights, inputs, carry)
                        params = distribution.params(outputs, free)
                        action = distribution.sample(params, noise[t, lane])
                        buffer.add_action(t, lane, outputs, action, carry)
                        self._lanes.send(index, action)
            return buffer.samples(distribution, free), buffer.state


class _OneLane:
    """All environments of a batch as one lane."""

    def __init__(self, env: Steppable):
        self._env = env
        self.lanes = (slice(0, env.num_envs),)

    def send(self, _: int, actions: np.ndarray) -> None:
        self._actions = actions

    def receive(self, _: int) -> StepResult:
        return self._env.step(self._actions)
