"""Implements Gymnasium's Pendulum-v1 as a NumPy batch: swing a pendulum up and hold it there."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.classic.acrobot import square
from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLACK, RED, Canvas
from trellis.envs.classic.streams import first_uniform

SECONDS = 0.05
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
START = np.array([np.pi, 1.0])
"""Largest absolute values of angle and speed at the start."""


class Pendulum(ArrayBatch):
    """Batch of Gymnasium's Pendulum-v1: the same seed and actions give the same bits.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        g: Acceleration of gravity.
    """

    numbers = 2
    seconds_per_step = SECONDS

    def __init__(
        self, env_id: str, num_envs: int, *, max_episode_steps: int | None = 200, g: float = 10.0
    ):
        high = np.array([1.0, 1.0, MAX_SPEED], np.float32)
        observation_space = spaces.Box(-high, high, dtype=np.float32)
        action_space = spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)
        limit = max_episode_steps
        super().__init__(env_id, num_envs, observation_space, action_space, max_episode_steps=limit)
        self._gravity = g

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        return -START + (START - -START) * first_uniform(seeds, 2, 0.0, 1.0)

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        angle, speed = state
        # Gymnasium computes with the torque in float32, one number at a time.
        torque = actions[:, 0].astype(np.float32)
        within = ((angle + np.pi) % (2 * np.pi)) - np.pi
        effort = np.array([0.001 * one**2 for one in torque])
        cost = square(within) + 0.1 * square(speed) + effort
        pull = 3 * self._gravity / 2.0 * np.sin(angle)
        speed = np.clip(speed + (pull + 3.0 * torque) * SECONDS, -MAX_SPEED, MAX_SPEED)
        state = np.stack([angle + speed * SECONDS, speed])
        return Moved(state, -cost, np.zeros(self.num_envs, bool))

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        angle, speed = np.ascontiguousarray(state)
        return np.stack([np.cos(angle), np.sin(angle), speed], axis=1).astype(np.float32)

    def render(self, index: int = 0, size: int = 400) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (size, size, 3); angle 0 is upright."""
        angle = float(self._state[0, index])
        canvas = Canvas(size, size, -1.3, -1.3, size / 2.6)
        canvas.line((0.0, 0.0), (-math.sin(angle), math.cos(angle)), 0.2, RED)
        canvas.disc(0.0, 0.0, 0.05, BLACK)
        return canvas.picture
