"""Vine's branches (Sec. 5.2): K rollouts from each of many states, all advanced together.

Rows of a batch are copies of the states, restored from snapshots. Rollouts that have ended are
masked, never compacted. With common random numbers the K rollouts of a state share the noise of
their actions and the random stream of their environments, so that they differ by their first
actions alone: K copies of one action give one Q̂, to the bit.

That last is why rows lie as (K, states): a BLAS may round a row of a matrix product by its place
among the rows, and here the K rollouts of a state have the same place in K equal products.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from trellis.policies.policy import Policy
from trellis.sampling.samples import Observation

MOST_ROWS = 1024
"""Of the batch in which rollouts advance: enough to hide what a step costs besides the physics."""


class Branching(Protocol):
    """What rollouts ask of an environment batch: it can be put back and seeded anew."""

    num_envs: int

    def snapshot(self, ids: np.ndarray) -> Mapping[str, np.ndarray]: ...
    def restore(self, ids: np.ndarray, rows: Any) -> Observation: ...
    def reseed(self, ids: np.ndarray, seeds: np.ndarray) -> None: ...
    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Observation: ...
    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> Any: ...
    def close(self) -> None: ...


class Outcomes(NamedTuple):
    """What became of the rollouts, (K, N)."""

    reward_sum: np.ndarray
    """Σ γᵗ r_t."""
    length: np.ndarray
    """Steps until it ended or was cut."""
    terminated: np.ndarray
    """Whether nothing follows."""
    final_observation: np.ndarray
    """Encoded, not normalized, (K, N, features)."""


class Rollouts:
    """Grows rollouts of `length` steps in a batch of environments of its own."""

    def __init__(
        self,
        make_env: Callable[[int], Branching],
        policy: Policy,
        encode: Callable[[Observation], np.ndarray],
        *,
        states: int,
        actions: int,
        length: int,
        gamma: float,
        common_random_numbers: bool = True,
        most_rows: int = MOST_ROWS,
    ):
        chunks = -(-states * actions // most_rows)
        self._chunk_states = -(-states // chunks)
        self._make_env = make_env
        self._env: Branching | None = None  # made when first needed: to evaluate takes none
        self._policy, self._encode = policy, encode
        self._actions, self._length, self._gamma = actions, length, gamma
        self._streams = 1 if common_random_numbers else actions

    def run(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        rows: Mapping[str, np.ndarray],
        first: np.ndarray,
        rng: np.random.Generator,
    ) -> Outcomes:
        """One rollout from each of the N snapshot `rows` after each of its `first` actions,
        (K, N, ...), by π_θ from then on."""
        if self._env is None:
            self._env = self._make_env(self._actions * self._chunk_states)
        states = first.shape[1]
        parts = []
        for start in range(0, states, self._chunk_states):
            # The last chunk is filled up with copies of its last state, which do not move.
            index = np.arange(start, start + self._chunk_states)
            real = index < states
            index = np.minimum(index, states - 1)
            chunk = {name: values[index] for name, values in rows.items()}
            part = self._run_chunk(self._env, theta, normalize, chunk, first[:, index], real, rng)
            parts.append(Outcomes(*(values[:, real] for values in part)))
        return Outcomes(*(np.concatenate(column, axis=1) for column in zip(*parts, strict=True)))

    def close(self) -> None:
        """Lets go of the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _run_chunk(
        self,
        env: Branching,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        rows: Mapping[str, np.ndarray],
        first: np.ndarray,
        real: np.ndarray,
        rng: np.random.Generator,
    ) -> Outcomes:
        K, C = self._actions, self._chunk_states
        distribution = self._policy.distribution
        seeds = rng.integers(2**31, size=(self._streams, C))
        noise = distribution.noise(rng, (self._length - 1, self._streams, C))
        weights, free = self._policy.unflatten(theta)

        ids, copies = np.arange(K * C), np.tile(np.arange(C), K)
        env.restore(ids, {name: values[copies] for name, values in rows.items()})
        env.reseed(ids, np.broadcast_to(seeds, (K, C)).ravel())
        active = real[copies]
        action = first.reshape(K * C, *first.shape[2:])
        reward_sum, length = np.zeros(K * C), np.zeros(K * C, np.int64)
        terminated = np.zeros(K * C, bool)
        discount, t = 1.0, 0
        while True:
            step = env.step(action, active)
            reward_sum += discount * step.reward
            length += active
            terminated |= step.terminated
            active = active & ~(step.terminated | step.truncated)
            raw = self._encode(step.observation)
            if t == self._length - 1 or not active.any():
                break
            seen = normalize(raw).reshape(K, C, *raw.shape[1:])
            outputs = self._policy.network.apply(weights, seen)
            action = distribution.sample(distribution.params(outputs, free), noise[t])
            action = action.reshape(K * C, *action.shape[2:])
            discount *= self._gamma
            t += 1
        columns = reward_sum, length, terminated, raw
        return Outcomes(*(values.reshape(K, C, *values.shape[1:]) for values in columns))
