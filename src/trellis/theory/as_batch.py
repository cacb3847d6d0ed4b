"""A finite MDP as a batch of environments, so that samplers can be held against exact quantities.

The batch can be put back where it was, row by row, so it serves both the single path (Sec. 5.1)
and the vine (Sec. 5.2). A row's random numbers are a pure function of its stream and of how many
it has drawn (SplitMix64 of both), so its whole future is three integers, and two rows with the same
stream see common random numbers.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.theory.as_gymnasium import cumulative_rows
from trellis.theory.mdp import FiniteMDP

if TYPE_CHECKING:
    from trellis.envs.batch import BatchEnv


def to_batch(
    mdp: FiniteMDP,
    num_envs: int,
    *,
    max_episode_steps: int | None = None,
    one_hot: bool = True,
    env_id: str = "FiniteMDP",
) -> "BatchEnv":
    """`num_envs` copies of the MDP, stepped together.

    A step pays the reward of the state that it leaves; reaching a state that is never left and
    pays nothing terminates. Observations are one-hot float32 rows, on which a linear softmax
    policy is a tabular one, or the states' numbers.
    """
    from gymnasium import spaces

    from trellis.envs.batch import BatchEnv, Restorability, Step

    cumulative, initial = cumulative_rows(mdp.P), cumulative_rows(mdp.rho0)
    rewards = np.broadcast_to(mdp.r.reshape(mdp.num_states, -1), (mdp.num_states, mdp.num_actions))
    over = mdp.is_over
    observation_space = (
        spaces.Box(0.0, 1.0, (mdp.num_states,), np.float32)
        if one_hot
        else spaces.Discrete(mdp.num_states)
    )

    class FiniteMDPBatch(BatchEnv):
        """Rows of (state, stream, draws)."""

        restorability = Restorability.SERIALIZABLE

        def __init__(self) -> None:
            action_space = spaces.Discrete(mdp.num_actions)
            super().__init__(
                env_id,
                num_envs,
                observation_space,
                action_space,
                max_episode_steps=max_episode_steps,
            )
            self.state = np.zeros(num_envs, np.int64)
            self.stream = np.zeros(num_envs, np.uint64)
            self.draws = np.zeros(num_envs, np.uint64)

        def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Any:
            self._reseed(ids, seeds)
            self.state[ids] = (initial <= self._draw(ids)[:, None]).sum(axis=1)
            return self._observe(self.state[ids])

        def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
            ids = np.flatnonzero(active)
            before, chosen = self.state[ids], actions[ids]
            following = (cumulative[before, chosen] <= self._draw(ids)[:, None]).sum(axis=1)
            self.state[ids] = following
            reward, terminated = np.zeros(num_envs), np.zeros(num_envs, bool)
            reward[ids], terminated[ids] = rewards[before, chosen], over[following]
            return Step(self._observe(self.state), reward, terminated, np.zeros(num_envs, bool))

        def _snapshot(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
            return {
                "state": self.state[ids],
                "stream": self.stream[ids],
                "draws": self.draws[ids],
                "observation": self._observe(self.state[ids]),
            }

        def _restore(self, ids: NDArray[np.int64], rows: Any) -> Any:
            self.state[ids] = rows["state"]
            self.stream[ids], self.draws[ids] = rows["stream"], rows["draws"]
            return rows["observation"].copy()

        def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
            self.stream[ids] = split_mix(seeds.astype(np.uint64))
            self.draws[ids] = 0

        def _draw(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
            """The next uniform number in [0, 1) of each row."""
            self.draws[ids] += np.uint64(1)
            bits = split_mix(self.stream[ids] + self.draws[ids] * GOLDEN)
            return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

        def _observe(self, state: NDArray[np.int64]) -> Any:
            if not one_hot:
                return state.copy()
            return np.eye(mdp.num_states, dtype=np.float32)[state]

    return FiniteMDPBatch()


# 2⁶⁴ divided by the golden ratio: SplitMix64's step between consecutive states.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def split_mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function (Steele, Lea and Flood, 2014): 64 bits to 64 mixed bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
