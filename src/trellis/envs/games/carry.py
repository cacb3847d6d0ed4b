"""Implements a task with mixed actions: move a hand, and open or close its gripper.

The hand starts somewhere on a square table, the object and its target elsewhere. To carry the
object, close the gripper on it; to finish, open the gripper at the target. The reward is the
progress of the next thing to do (hand to object, then object to target), and 10 at the end.

    action = {"gripper": Discrete(2), "move": Box(-1, 1, (2,))}
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLACK, BLUE, GREEN, RED, Canvas
from trellis.envs.classic.streams import first_uniform

SPEED = 0.1
"""Largest distance of a step, along each axis."""
REACH = 0.15
"""Largest distance at which the gripper holds the object, and the object is at its target."""


class Carry(ArrayBatch):
    """Batch of hands that carry an object.

    Args:
        num_envs: Size of the batch.
        max_episode_steps: Time limit.
    """

    numbers = 7  # Positions of hand, object and target, and whether the gripper is closed.
    seconds_per_step = 0.1

    def __init__(self, num_envs: int, *, max_episode_steps: int | None = 100):
        actions = spaces.Dict(
            {"gripper": spaces.Discrete(2), "move": spaces.Box(-1.0, 1.0, (2,), np.float32)}
        )
        observation = spaces.Box(-2.0, 2.0, (9,), np.float32)
        limit = max_episode_steps
        super().__init__(
            "trellis/Carry-v0", num_envs, observation, actions, max_episode_steps=limit
        )

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        places = first_uniform(seeds, 6, -1.0, 1.0)
        # A target near the object would need no carrying, so it is moved to the other side.
        near = np.hypot(*(places[:, 4:6] - places[:, 2:4]).T) < 4 * REACH
        places[near, 4:6] = np.where(places[near, 2:4] > 0, -0.8, 0.8)
        return np.concatenate([places, np.zeros((len(seeds), 1))], axis=1)

    def _move(self, state: States, actions: Any) -> Moved:
        hand, thing, target, closed = state[:2], state[2:4], state[4:6], state[6] > 0
        closes = np.asarray(actions["gripper"]) == 1
        near = np.hypot(*(thing - hand)) < REACH
        # A gripper that was closed elsewhere must open before it can hold the object.
        holds = near & closes & (~closed | (np.hypot(*(thing - hand)) < 1e-9))
        after = np.clip(hand + SPEED * np.asarray(actions["move"]).T, -1.0, 1.0)
        moved = np.where(holds, after, thing)
        placed = ~closes & (np.hypot(*(moved - target)) < REACH)

        def left_to_do(hand: States, thing: States, holds: NDArray[np.bool_]) -> Any:
            carry = np.hypot(*(target - thing))
            return carry + np.where(holds, 0.0, np.hypot(*(thing - hand)) + 0.2)

        before = closed & (np.hypot(*(thing - hand)) < 1e-9)
        progress = left_to_do(hand, thing, before) - left_to_do(after, moved, holds)
        reward = np.where(placed, 10.0, progress)
        state = np.concatenate([after, moved, target, closes[None].astype(np.float64)])
        return Moved(state, reward, placed)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        hand, thing, target = state[:2], state[2:4], state[4:6]
        parts = [hand, thing - hand, target - thing, target, state[6:]]
        return np.concatenate(parts).T.astype(np.float32)

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture: the hand is blue (dark if closed), the object red, its target green."""
        canvas = Canvas(240, 240, -1.2, -1.2, 100)
        hand, thing, target = self._state[:6, index].reshape(3, 2).tolist()
        canvas.disc(target[0], target[1], REACH, GREEN)
        canvas.disc(thing[0], thing[1], 0.08, RED)
        canvas.disc(hand[0], hand[1], 0.06, BLACK if self._state[6, index] else BLUE)
        return canvas.picture
