"""Defines two small tasks that nobody solves without memory, as NumPy batches.

In the T-maze (Bakker 2002) a sign at the start says where to turn at the end of a corridor. In the
other task a symbol has to be repeated after some steps in which nothing is shown. A policy without
memory can only guess: it turns the right way in half of all mazes, and repeats one symbol of four.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis import rng
from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLUE, GOLD, GREEN, GREY, RED, Canvas

SYMBOLS = 4
"""Number of symbols of the task that repeats one."""


class TMaze(ArrayBatch):
    """Batch of T-mazes: a corridor of `length` steps, then a turn to the left or to the right.

    An observation has three numbers: the sign (−1 left, 1 right; 0 after the first step), and
    whether the position is in the corridor or at the junction. Actions are left (0), right (1) and
    forward (2). The right turn has reward 1 and the wrong one 0; both end the episode. Bumping into
    a wall costs 0.05.

    Args:
        num_envs: Size of the batch.
        length: Number of steps from the start to the junction.
        max_episode_steps: Time limit; -1 for no limit. Default: three times the length.
    """

    numbers = 2
    seconds_per_step = 0.1

    def __init__(self, num_envs: int, *, length: int = 20, max_episode_steps: int | None = None):
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        limit = 3 * length if max_episode_steps is None else max_episode_steps
        self._length = length
        self.fewest_steps = length + 1
        """Number of steps of the shortest way to the reward."""
        super().__init__(
            "trellis/TMaze-v0",
            num_envs,
            spaces.Box(-1.0, 1.0, (3,), np.float32),
            spaces.Discrete(3),
            max_episode_steps=limit,
        )

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        side = np.where(rng.uniform(seeds, 1, 0.0, 1.0)[:, 0] < 0.5, -1.0, 1.0)
        return np.stack([np.zeros(len(seeds)), side], axis=1)

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        position, side = state
        at_junction, forward = position == self._length, actions == 2
        turned = at_junction & ~forward
        right = turned & (np.where(actions == 1, 1.0, -1.0) == side)
        bumped = at_junction == forward
        position = position + (forward & ~at_junction)
        return Moved(np.stack([position, side]), right - 0.05 * bumped, turned)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        position, side = state
        at_junction = position == self._length
        sign = np.where(first, side, 0.0)
        return np.stack([sign, ~at_junction, at_junction], axis=1).astype(np.float32)

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, from above; the goal is green."""
        position, side = self._state[:, index]
        scale = 400 / (self._length + 3)
        canvas = Canvas(400, max(round(5 * scale), 60), -1.0, -2.5, scale)
        canvas.rectangle(-0.5, -0.5, self._length + 1, 1, GREY)
        canvas.rectangle(self._length - 0.5, -1.5, 1, 3, GREY)
        canvas.rectangle(self._length - 0.5, -side - 0.5, 1, 1, GREEN)
        canvas.disc(float(position), 0.0, 0.4, RED)
        return canvas.picture


class Repeat(ArrayBatch):
    """Batch of episodes that show a symbol first and ask for it after `delay` steps.

    An observation has one number per symbol (all 0 after the first step) and whether the symbol is
    asked for now. The action of the last step has reward 1 if it names the symbol. Actions before
    that have no effect.

    Args:
        num_envs: Size of the batch.
        delay: Number of steps between the symbol and the question.
        max_episode_steps: Time limit. Default: `delay` + 1, after which the task ends anyway.
    """

    numbers = 2
    seconds_per_step = 0.1

    def __init__(self, num_envs: int, *, delay: int = 10, max_episode_steps: int | None = None):
        if delay < 1:
            raise ValueError(f"delay must be at least 1, got {delay}")
        limit = delay + 1 if max_episode_steps is None else max_episode_steps
        self._delay = delay
        super().__init__(
            "trellis/Repeat-v0",
            num_envs,
            spaces.Box(0.0, 1.0, (SYMBOLS + 1,), np.float32),
            spaces.Discrete(SYMBOLS),
            max_episode_steps=limit,
        )

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        symbol = np.floor(rng.uniform(seeds, 1, 0.0, float(SYMBOLS))[:, 0])
        return np.stack([np.zeros(len(seeds)), np.minimum(symbol, SYMBOLS - 1)], axis=1)

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        time, symbol = state
        asked = time == self._delay
        reward = (asked & (actions == symbol)).astype(np.float64)
        return Moved(np.stack([time + ~asked, symbol]), reward, asked)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        time, symbol = state
        shown = (symbol[:, None] == np.arange(SYMBOLS)) & first[:, None]
        asked = (time == self._delay)[:, None]
        return np.concatenate([shown, asked], axis=1).astype(np.float32)

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """Return a picture of environment `index`: the symbol, and the time that has passed."""
        time, symbol = self._state[:, index]
        canvas = Canvas(400, 160, -0.5, -0.8, 400 / (SYMBOLS + 1))
        for one in range(SYMBOLS):
            canvas.disc(float(one), 0.5, 0.3, GOLD if one == symbol else GREY)
        canvas.rectangle(-0.3, -0.4, (SYMBOLS - 0.4) * (time + 1) / (self._delay + 1), 0.2, BLUE)
        return canvas.picture
