"""Implements the knight's tour: a game with many illegal moves and action masks.

A knight visits squares of an empty chess board, each at most once. A move gives a reward of 1. The
episode ends when no move is left, so the return is the number of moves; a whole tour has size² − 1.
Of a knight's eight moves, most are illegal: they leave the board or return to a visited square.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLUE, GREY, Canvas
from trellis.envs.classic.streams import first_uniform
from trellis.masks import MASK_KEY, OBSERVATION_KEY

KNIGHTS_TOUR = "trellis/KnightsTour-v0"
"""Id of the environment."""
MOVES = np.array([(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)])
"""Rows and columns of the eight moves."""


class KnightsTour(ArrayBatch):
    """Batch of knight's tours.

    Args:
        num_envs: Size of the batch.
        size: Squares on a side of the board.
        masked: Whether observations have an action mask. Without masks an illegal move does nothing
            and gives `illegal_reward`.
        illegal_reward: Reward of an illegal move, without masks.
        max_episode_steps: Time limit. Default: four times the number of squares.
    """

    seconds_per_step = 0.5

    def __init__(
        self,
        num_envs: int,
        *,
        size: int = 6,
        masked: bool = True,
        illegal_reward: float = -1.0,
        max_episode_steps: int | None = None,
    ):
        if not 3 <= size <= 12:
            raise ValueError(f"size must be between 3 and 12, got {size}")
        self.size, self.masked, self.illegal_reward = size, masked, illegal_reward
        self.numbers = squares = size * size  # 0 for a free square, 1 visited, 2 the knight's own
        board: spaces.Space[Any] = spaces.Box(0.0, 1.0, (2 * squares,), np.float32)
        if masked:
            mask = spaces.MultiBinary(len(MOVES))
            board = spaces.Dict({OBSERVATION_KEY: board, MASK_KEY: mask})
        limit = 4 * squares if max_episode_steps is None else max_episode_steps
        actions = spaces.Discrete(len(MOVES))
        super().__init__(KNIGHTS_TOUR, num_envs, board, actions, max_episode_steps=limit)
        rows, columns = np.divmod(np.arange(squares), size)
        to = np.stack([rows, columns])[:, :, None] + MOVES.T[:, None, :]
        inside = ((to >= 0) & (to < size)).all(axis=0)
        self._target = np.where(inside, to[0] * size + to[1], -1)
        """Square after each move from each square, -1 outside of the board."""

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        square = (first_uniform(seeds, 1, 0.0, 1.0)[:, 0] * self.numbers).astype(np.int64)
        state = np.zeros((len(seeds), self.numbers))
        state[np.arange(len(seeds)), square] = 2
        return state

    def _legal(self, state: States) -> NDArray[np.bool_]:
        """Return which moves are legal, (env, move)."""
        target = self._target[state.argmax(axis=0)]
        visited = state.T[np.arange(state.shape[1])[:, None], target] > 0
        return (target >= 0) & ~visited

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        everyone = np.arange(state.shape[1])
        here, legal = state.argmax(axis=0), self._legal(state)[everyone, actions]
        after = np.minimum(state, 1)
        after[np.where(legal, self._target[here, actions], here), everyone] = 2
        reward = np.where(legal, 1.0, self.illegal_reward)
        return Moved(after, reward, np.logical_not(self._legal(after).any(axis=1)))

    def _observe(self, state: States, first: NDArray[np.bool_]) -> Any:
        board = np.concatenate([state > 0, state > 1]).T.astype(np.float32)
        if not self.masked:
            return board
        return {OBSERVATION_KEY: board, MASK_KEY: self._legal(state).astype(np.int8)}

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of the board: visited squares are grey, the knight is blue."""
        pixels = 40
        canvas = Canvas(pixels * self.size, pixels * self.size, 0.0, 0.0, pixels)
        for square in np.flatnonzero(self._state[:, index]).tolist():
            row, column = divmod(square, self.size)
            canvas.rectangle(column + 0.05, row + 0.05, 0.9, 0.9, GREY)
        row, column = divmod(int(self._state[:, index].argmax()), self.size)
        canvas.disc(column + 0.5, row + 0.5, 0.35, BLUE)
        return canvas.picture
