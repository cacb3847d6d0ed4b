"""Single path (Sec. 5.1): trajectories from ρ₀ under π_θold, all environments side by side.

Every environment is stepped the same number of times; where an episode ends, the next begins in its
row. With `whole_paths` each iteration starts from ρ₀, as in the paper: as many environments as
paths, as many steps as a path is long, and new paths in place of those that end early until the
budget of simulator steps is spent. Without, episodes go on from one iteration to the next.

The policy runs in NumPy beside the simulator: for networks of this size a call into a compiled
program costs more than the arithmetic.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from trellis.policies.policy import Policy
from trellis.sampling.frames import PathMemory
from trellis.sampling.samples import Observation, Samples
from trellis.streams import Purpose, stream
from trellis.threads import one_blas_thread


class Steppable(Protocol):
    """What single path asks of an environment batch."""

    num_envs: int

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Observation: ...
    def step(self, actions: np.ndarray) -> Any: ...


class PathState(NamedTuple):
    """Where the environments stand between two iterations; `None` of it before the first."""

    observation: np.ndarray
    """Encoded, not normalized, (N, ...)."""
    age: np.ndarray
    """Steps since the episode began, (N,)."""
    episode_return: np.ndarray
    """Rewards since then, (N,)."""


class SinglePath:
    """Collects `steps` time steps from each environment of a batch."""

    def __init__(
        self,
        env: Steppable,
        policy: Policy,
        encode: Callable[[Observation], np.ndarray],
        *,
        steps: int,
        whole_paths: bool = False,
        seed: int = 0,
        shard: int = 0,
    ):
        self._env, self._policy, self._encode = env, policy, encode
        self._steps, self._whole_paths = steps, whole_paths
        self._seed, self._shard = seed, shard

    def collect(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        """One iteration's samples, and where the environments stand after it."""
        with one_blas_thread():
            return self._collect(theta, normalize, state, iteration)

    def _collect(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, PathState]:
        T, N = self._steps, self._env.num_envs
        resets = stream(self._seed, Purpose.RESETS, iteration=iteration, shard=self._shard)
        if state is None or self._whole_paths:
            first = self._reset(np.arange(N), resets)
            state = PathState(first, np.zeros(N, np.int64), np.zeros(N))
        raw, age, episode_return = state
        age, episode_return = age.copy(), episode_return.copy()

        distribution = self._policy.distribution
        actions_rng = stream(self._seed, Purpose.ACTIONS, iteration=iteration, shard=self._shard)
        noise = distribution.noise(actions_rng, (T, N))
        weights, free = self._policy.unflatten(theta)
        outputs_of = self._policy.network.apply
        memory = PathMemory(raw, T, normalize)
        rows: list[tuple[Any, ...]] = []
        ends: list[tuple[Any, ...]] = []
        for t in range(T):
            observation, kept = memory.look(raw)
            outputs = outputs_of(weights, observation)
            action = distribution.sample(distribution.params(outputs, free), noise[t])
            seen, reward, terminated, truncated = self._env.step(action)
            rows.append((kept, outputs, action, reward, terminated, truncated, age.copy()))
            raw = self._encode(seen)
            memory.advance(raw)
            age += 1
            episode_return += reward
            ended = terminated | truncated
            if ended.any():
                (ids,) = np.nonzero(ended)
                last = memory.see(raw)
                ends += [(t, i, last[i], episode_return[i], age[i]) for i in ids]
                raw = raw.copy()
                raw[ids] = self._reset(ids, resets)
                memory.begin(ids, raw[ids])
                age[ids], episode_return[ids] = 0, 0.0

        observation, outputs, action, reward, terminated, truncated, ages = (
            np.stack(column) for column in zip(*rows, strict=True)
        )
        last = memory.see(raw)
        final = np.stack([end[2] for end in ends]) if ends else last[:0]
        samples = Samples(
            observation=memory.recall(observation),
            raw_observation=memory.raw,
            action=action,
            log_q=distribution.log_prob(distribution.params(outputs, free), action),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            age=ages,
            weight=np.ones((T, N), np.float32),
            final_at=np.array([end[:2] for end in ends], np.int64).reshape(-1, 2),
            final_observation=memory.recall(final),
            last_observation=memory.recall(last),
            episode_return=np.array([end[3] for end in ends]),
            episode_length=np.array([end[4] for end in ends], np.int64),
        )
        return samples, PathState(raw, age, episode_return)

    def _reset(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._encode(self._env.reset(ids, rng.integers(2**31, size=len(ids))))
