"""Single path (Sec. 5.1): trajectories from ρ₀ under π_θold, all environments side by side.

Every environment is stepped the same number of times; where an episode ends, the next begins in its
row. With `whole_paths` each iteration starts from ρ₀, as in the paper: as many environments as
paths, as many steps as a path is long, and new paths in place of those that end early until the
budget of simulator steps is spent. Without, episodes go on from one iteration to the next.

The policy runs in NumPy beside the simulator: for networks of this size a call into a compiled
program costs more than the arithmetic. Where an environment has several lanes, groups of rows that
step by turns, the policy looks at one of them while the others move.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from trellis.blas import one_blas_thread
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.frames import PathMemory
from trellis.sampling.samples import Columns, Observation, Samples


class Steppable(Protocol):
    """What single path asks of an environment batch."""

    num_envs: int

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Observation: ...
    def step(self, actions: np.ndarray) -> Any: ...


@runtime_checkable
class Lanes(Protocol):
    """One whose rows step by turns, a lane while the policy looks at another."""

    lanes: Sequence[slice]
    """The rows of each, all of them in order."""

    def send(self, lane: int, actions: np.ndarray) -> None: ...
    def receive(self, lane: int) -> Any: ...


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
        self._lanes = env if isinstance(env, Lanes) else _OneLane(env)
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
        resets = stream(self._seed, Purpose.RESETS, iteration=iteration, shard=self._shard)
        noise_rng = stream(self._seed, Purpose.ACTIONS, iteration=iteration, shard=self._shard)
        noise = self._policy.distribution.noise(noise_rng, (self._steps, self._env.num_envs))

        def reset(ids: np.ndarray) -> np.ndarray:
            seeds = resets.integers(2**31, size=len(ids))
            return self._encode(self._env.reset(ids, seeds))

        with one_blas_thread():
            if state is None or self._whole_paths:
                num_envs = self._env.num_envs
                first = reset(np.arange(num_envs))
                state = PathState(first, np.zeros(num_envs, np.int64), np.zeros(num_envs))
            walk = _Walk(self._policy, theta, normalize, noise, state, reset)
            for t in range(self._steps + 1):
                for lane, rows in enumerate(self._lanes.lanes):
                    if t > 0:
                        seen, *outcome = self._lanes.receive(lane)
                        walk.arrive(t - 1, rows, self._encode(seen), *outcome)
                    if t < self._steps:
                        self._lanes.send(lane, walk.decide(t, rows))
            return walk.samples(), walk.state


class _OneLane:
    """All rows of an environment at once, by the calls of `Lanes`."""

    def __init__(self, env: Steppable):
        self._env = env
        self.lanes = (slice(0, env.num_envs),)

    def send(self, lane: int, actions: np.ndarray) -> None:
        del lane  # there is one
        self._actions = actions

    def receive(self, lane: int) -> Any:
        del lane
        return self._env.step(self._actions)


class _Walk:
    """The samples of an iteration in the making; rows may be at different times."""

    def __init__(
        self,
        policy: Policy,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        noise: Any,
        state: PathState,
        reset: Callable[[np.ndarray], np.ndarray],
    ):
        self._distribution, self._outputs_of = policy.distribution, policy.network.apply
        self._weights, self._free = policy.unflatten(theta)
        self._noise, self._reset = noise, reset
        self.state = PathState(*(values.copy() for values in state))
        shape = noise.shape[:2]
        self._memory = PathMemory(state.observation, shape[0], normalize)
        self._decided, self._arrived = Columns(shape), Columns(shape)
        self._ends: list[tuple[Any, ...]] = []

    def decide(self, t: int, rows: slice) -> np.ndarray:
        """What to do in these rows at time t."""
        observation, age, _ = self.state
        seen, kept = self._memory.look(t, rows, observation[rows])
        outputs = self._outputs_of(self._weights, seen)
        params = self._distribution.params(outputs, self._free)
        action = self._distribution.sample(params, self._noise[t, rows])
        self._decided.put(t, rows, kept, outputs, action, age[rows])
        return action

    def arrive(
        self,
        t: int,
        rows: slice,
        seen: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """What came of it; new episodes begin where one has ended."""
        observation, age, episode_return = self.state
        self._arrived.put(t, rows, reward, terminated, truncated)
        observation[rows] = seen
        self._memory.advance(rows, seen)
        age[rows] += 1
        episode_return[rows] += reward
        ended = terminated | truncated
        if not ended.any():
            return
        ids = rows.start + np.flatnonzero(ended)
        last = self._memory.see(ids, observation[ids])
        self._ends += zip([t] * len(ids), ids, last, episode_return[ids], age[ids], strict=True)
        observation[ids] = self._reset(ids)
        self._memory.begin(ids, observation[ids])
        age[ids], episode_return[ids] = 0, 0.0

    def samples(self) -> Samples:
        """All of them, when every row has arrived at the end."""
        kept, outputs, action, age = self._decided.arrays
        reward, terminated, truncated = self._arrived.arrays
        memory, distribution = self._memory, self._distribution
        everyone = np.arange(len(self.state.observation))
        last = memory.see(everyone, self.state.observation)
        final = np.stack([end[2] for end in self._ends]) if self._ends else last[:0]
        return Samples(
            observation=memory.recall(kept),
            raw_observation=memory.raw,
            action=action,
            log_q=distribution.log_prob(distribution.params(outputs, self._free), action),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            age=age,
            weight=np.ones(reward.shape, np.float32),
            final_at=np.array([end[:2] for end in self._ends], np.int64).reshape(-1, 2),
            final_observation=memory.recall(final),
            last_observation=memory.recall(last),
            episode_return=np.array([end[3] for end in self._ends]),
            episode_length=np.array([end[4] for end in self._ends], np.int64),
        )
