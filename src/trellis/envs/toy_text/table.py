"""Steps Gymnasium's tabular toy texts by looking up their transitions: `TableBatch`.

FrozenLake, CliffWalking and Taxi hold a table: for each state and action the possible outcomes with
their probabilities. Gymnasium's own object builds the table, so every option means the same. One
random number per step selects an outcome, from a generator equal to Gymnasium's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import Step
from trellis.envs.toy_text.random_batch import RandomBatch

Picture = Callable[[Any, int], NDArray[np.uint8]]
"""Function that returns a picture of a Gymnasium object in a given state."""


class TableBatch(RandomBatch):
    """Batch of an environment with a table of transitions.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        source: Gymnasium's environment, with the table `P` and `initial_state_distrib`.
        picture: Function that renders a state.
        max_episode_steps: Time limit; None for no limit.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        source: Any,
        picture: Picture,
        *,
        max_episode_steps: int | None = None,
    ):
        spaces = source.observation_space, source.action_space
        states, self._fickle = int(spaces[0].n), bool(getattr(source, "fickle_passenger", False))
        super().__init__(
            env_id, num_envs, (states, 2), *spaces, max_episode_steps=max_episode_steps
        )
        self._source, self._picture = source, picture
        self._start = np.cumsum(source.initial_state_distrib)
        table = [list(source.P[state].values()) for state in range(states)]
        most = max(len(outcomes) for row in table for outcomes in row)
        # Shorter lists repeat their last entry, which is then never selected.
        self._outcomes = np.array(
            [[o + [o[-1]] * (most - len(o)) for o in row] for row in table], np.float64
        )
        for row, actions in zip(self._outcomes, table, strict=True):
            for cell, outcomes in zip(row, actions, strict=True):
                cell[: len(outcomes), 0] = np.cumsum([outcome[0] for outcome in outcomes])
                cell[len(outcomes) :, 0] = cell[len(outcomes) - 1, 0]

    def _observe(self, ids: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        return self._state[0, ids].copy()

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        self._streams.seed(ids, seeds)
        self._state[0, ids] = _select(self._start, self._streams.random(ids))
        if self._fickle:
            chance = self._source.fickle_probability
            self._state[1, ids] = self._streams.random(ids) < chance
        return self._observe(ids)

    def _step(self, actions: NDArray[np.int64], active: NDArray[np.bool_]) -> Step:
        ids = np.flatnonzero(active)
        outcomes = self._outcomes[self._state[0, ids], actions[ids]]
        chosen = _select(outcomes[..., 0], self._streams.random(ids))
        _, state, earned, ended = outcomes[np.arange(len(ids)), chosen].T
        state = state.astype(np.int64)
        if self._fickle:
            state = self._change_destination(ids, state)
        reward, terminated = np.zeros(self.num_envs), np.zeros(self.num_envs, bool)
        self._state[0, ids], reward[ids], terminated[ids] = state, earned, ended
        return Step(self._observe(slice(None)), reward, terminated, np.zeros(self.num_envs, bool))

    def _change_destination(
        self, ids: NDArray[np.int64], state: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return Taxi's states after a passenger may have changed the destination, once.

        A state is ((row · 5 + column) · 5 + passenger) · 4 + destination.
        """
        before = self._state[0, ids]
        riding, moved = before // 4 % 5 == 4, before // 20 != state // 20
        changing = np.flatnonzero((self._state[1, ids] == 1) & riding & moved)
        self._state[1, ids[changing]] = 0
        destination = self._streams.integers(ids[changing], 3)
        destination += destination >= before[changing] % 4
        state[changing] += destination - state[changing] % 4
        return state

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3)."""
        return self._picture(self._source, int(self._state[0, index]))


def _select(cumulative: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the first index whose cumulative probability exceeds a number, as Gymnasium does."""
    return np.argmax(cumulative > uniform[:, None], axis=-1)
