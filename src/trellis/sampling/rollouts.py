"""Runs the branches of vine: K rollouts from each of many states, all advanced together (Sec. 5.2).

The environments of the batch are copies of the states, restored from snapshots. Rollouts that have
ended are masked, not removed. With common random numbers, the K rollouts of a state share the noise
of their actions and the random streams of their environments. They differ only in their first
actions, so K copies of the same action give the same Q̂ bit for bit.

For that reason the environments are ordered as (K, states). The rounding of a row of a matrix
product may depend on the row's position. In this order, the K rollouts of a state have the same
position in K equal products.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.config import VineConfig
from trellis.inputs import with_lead
from trellis.policies.normalizer import Normalizer
from trellis.policies.policy import Policy
from trellis.sampling.environment import Branching, Snapshot
from trellis.spaces import Encoder

MAX_ENVS = 1024
"""Default size of the batch of rollouts, large enough to hide the overhead of a step."""


class Outcomes(NamedTuple):
    """Results of K rollouts from each of N states."""

    reward_sum: Float[np.ndarray, "action state"]
    """Discounted sum of rewards, Σ γᵗ r_t."""
    length: Int[np.ndarray, "action state"]
    """Number of steps until the rollout ended or reached its length limit."""
    terminated: Bool[np.ndarray, "action state"]
    """Whether the rollout ended in a terminal state."""
    final_observation: Shaped[np.ndarray, "action state ..."]
    """Encoded observation after the last step, not normalized."""
    final_carry: Float[np.ndarray, "action state values"] | None = None
    """Carry of a policy with memory after the last step; otherwise None."""


class Rollouts:
    """Runs rollouts of at most `settings.rollout_length` steps in its own batch of environments.

    Args:
        make_env: Creates a batch of environments of a given size.
        policy: The policy that acts after the first action.
        encode: Function from observations to features.
        settings: Settings of the vine sampler.
        actions: K, the number of rollouts from each state.
        gamma: Discount factor.
        max_envs: Largest size of the batch; more rollouts run in several chunks.
    """

    def __init__(
        self,
        make_env: Callable[[int], Branching],
        policy: Policy,
        encode: Encoder,
        settings: VineConfig,
        actions: int,
        gamma: float,
        max_envs: int = MAX_ENVS,
    ):
        chunks = -(-settings.states * actions // max_envs)
        self._chunk_states = -(-settings.states // chunks)
        self._make_env = make_env
        self._env: Branching | None = (
            None  # created by the first run, because evaluation needs none
        )
        self._policy, self._encode = policy, encode
        self._actions, self._length, self._gamma = actions, settings.rollout_length, gamma
        self._streams = 1 if settings.common_random_numbers else actions

    def run(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        snapshot: Snapshot,
        first_action: Shaped[np.ndarray, "action state ..."],
        rng: np.random.Generator,
        carry: Float[np.ndarray, "state values"] | None = None,
        *,
        legal: Bool[np.ndarray, "action state"] | None = None,
    ) -> Outcomes:
        """Run one rollout from each state after each of its K first actions.

        All later actions are sampled from π_θ.

        Args:
            theta: Parameters of the policy.
            normalize: Function from encoded observations to the policy's inputs.
            snapshot: The states.
            first_action: First actions, (K, states, ...).
            rng: Source of the noise and of the environments' random streams.
            carry: What a policy with memory carries out of each state; otherwise None.
            legal: Whether each first action is legal; by default all are. Rollouts whose first
                action is illegal have no steps.
        """
        if self._env is None:
            self._env = self._make_env(self._actions * self._chunk_states)
        states = first_action.shape[1]
        parts = []
        for start in range(0, states, self._chunk_states):
            # Inactive copies of the last state fill the last chunk.
            index = np.arange(start, start + self._chunk_states)
            real = index < states
            index = np.minimum(index, states - 1)
            chunk = jax.tree.map(lambda values, index=index: values[index], snapshot)
            carried = None if carry is None else carry[index]
            runs = np.broadcast_to(real, (self._actions, len(real)))
            if legal is not None:
                runs = runs & legal[:, index]
            part = self._run_chunk(
                self._env, theta, normalize, chunk, first_action[:, index], runs, rng, carried
            )
            parts.append(jax.tree.map(lambda values, real=real: values[:, real], part))
        return jax.tree.map(lambda *values: np.concatenate(values, axis=1), *parts)

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _randomness(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return seeds (stream, state) of environments and noise (time, stream, state, ...)."""
        streams = self._streams, self._chunk_states
        seeds = rng.integers(2**31, size=streams)
        return seeds, self._policy.distribution.noise(rng, (self._length - 1, *streams))

    def _run_chunk(
        self,
        env: Branching,
        theta: np.ndarray,
        normalize: Normalizer,
        snapshot: Snapshot,
        first_action: np.ndarray,
        runs: np.ndarray,
        rng: np.random.Generator,
        carry: np.ndarray | None,
    ) -> Outcomes:
        K, C = self._actions, self._chunk_states
        distribution = self._policy.distribution
        seeds, noise = self._randomness(rng)
        weights, free = self._policy.unflatten(theta)

        ids, copies = np.arange(K * C), np.tile(np.arange(C), K)
        env.restore(ids, {name: values[copies] for name, values in snapshot.items()})
        env.reseed(ids, np.broadcast_to(seeds, (K, C)).ravel())
        active = runs.ravel()
        action = first_action.reshape(K * C, *first_action.shape[2:])
        reward_sum, length = np.zeros(K * C), np.zeros(K * C, np.int64)
        terminated = np.zeros(K * C, bool)
        if carry is not None:
            carry = np.broadcast_to(carry, (K, *carry.shape))
        discount, t = 1.0, 0
        while True:
            step = env.step(action, active)
            reward_sum += discount * step.reward
            length += active
            terminated |= step.terminated
            active = active & ~(step.terminated | step.truncated)
            observation = self._encode(step.observation)
            if t == self._length - 1 or not active.any():
                break
            inputs = with_lead(normalize(observation), K, C)
            # Rollouts that have ended keep the carry of their last step.
            outputs, new = self._policy.advance(weights, inputs, carry)
            if carry is not None:
                carry = np.where(active.reshape(K, C, 1), new, carry)
            action = distribution.sample(distribution.params(outputs, free), noise[t])
            action = action.reshape(K * C, *action.shape[2:])
            discount *= self._gamma
            t += 1
        results = reward_sum, length, terminated, observation
        outcomes = Outcomes(*(with_lead(values, K, C) for values in results))
        return outcomes._replace(final_carry=carry)
