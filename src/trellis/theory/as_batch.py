"""Turns a finite MDP into a batch of environments, to test samplers against exact quantities.

The batch is restorable, so it works with single path (Sec. 5.1) and with vine (Sec. 5.2). The next
random number of an environment is a pure function (SplitMix64) of its stream and of the number of
samples so far. So three integers determine its future, and two environments with the same stream
have common random numbers.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Observation, Restorability, Snapshot, Step
from trellis.rng import GOLDEN, split_mix, unit_interval
from trellis.theory.as_gymnasium import cumulative, observation_space
from trellis.theory.mdp import FiniteMDP


class FiniteMDPBatch(BatchEnv):
    """Batch of copies of one MDP: a state, a random stream and a count of samples for each.

    A step earns the reward of the state that it leaves. The episode terminates when it reaches a
    state that is never left and has reward 0.

    Args:
        mdp: The MDP.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        one_hot: Whether observations are one-hot float32 vectors, on which a linear softmax policy
            is tabular, or indices of states.
        env_id: Name of the environment in error messages.

    Example:
        >>> from trellis.theory import chain
        >>> batch = to_batch(chain(3), num_envs=2)
        >>> batch.reset(np.arange(2), np.arange(2)).tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
        >>> batch.step(np.array([1, 0])).observation.tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """

    restorability = Restorability.SERIALIZABLE

    def __init__(
        self,
        mdp: FiniteMDP,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        one_hot: bool = True,
        env_id: str = "FiniteMDP",
    ):
        super().__init__(
            env_id,
            num_envs,
            observation_space(mdp, one_hot=one_hot),
            spaces.Discrete(mdp.num_actions),
            max_episode_steps=max_episode_steps,
        )
        self._one_hot = np.eye(mdp.num_states, dtype=np.float32) if one_hot else None
        self._next, self._first = cumulative(mdp.P), cumulative(mdp.rho0)
        self._rewards, self._is_over = mdp.action_rewards, mdp.is_over
        self.state = np.zeros(num_envs, np.int64)
        self.stream = np.zeros(num_envs, np.uint64)
        self.sampled = np.zeros(num_envs, np.uint64)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        self._reseed(ids, seeds)
        self.state[ids] = (self._first <= self._uniform(ids)[:, None]).sum(axis=1)
        return self._observe(self.state[ids])

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        ids = np.flatnonzero(active)
        before, chosen = self.state[ids], actions[ids]
        after = (self._next[before, chosen] <= self._uniform(ids)[:, None]).sum(axis=1)
        self.state[ids] = after
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        reward[ids] = self._rewards[before, chosen]
        terminated[ids] = self._is_over[after]
        return Step(self._observe(self.state), reward, terminated, truncated)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        return {
            "state": self.state[ids],
            "stream": self.stream[ids],
            "draws": self.sampled[ids],
            "observation": self._observe(self.state[ids]),
        }

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        self.state[ids] = snapshot["state"]
        self.stream[ids], self.sampled[ids] = snapshot["stream"], snapshot["draws"]
        return snapshot["observation"].copy()

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        self.stream[ids] = split_mix(seeds.astype(np.uint64))
        self.sampled[ids] = 0

    def _uniform(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the next random number in [0, 1) of each environment in `ids`."""
        self.sampled[ids] += np.uint64(1)
        return unit_interval(split_mix(self.stream[ids] + self.sampled[ids] * GOLDEN))

    def _observe(self, state: NDArray[np.int64]) -> NDArray[Any]:
        return state.copy() if self._one_hot is None else self._one_hot[state]


to_batch = FiniteMDPBatch
"""Turn an MDP into a batch of environments: `to_batch(mdp, num_envs)`."""
