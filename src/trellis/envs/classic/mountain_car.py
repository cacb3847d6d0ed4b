"""Implements Gymnasium's MountainCar-v0 and MountainCarContinuous-v0 as NumPy batches.

A car in a valley must swing back and forth to reach the top of the hill on its right (Moore, 1990).
"""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLACK, BLUE, GREEN, GREY, Canvas
from trellis.envs.classic.streams import first_uniform

MIN_POSITION = -1.2
MAX_POSITION = 0.6
MAX_SPEED = 0.07
GRAVITY = 0.0025
START = -0.6, -0.4


def cosine(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `math.cos` of each number, whose last bit may differ from NumPy's."""
    return np.fromiter(map(math.cos, values.tolist()), float, len(values))


class MountainCar(ArrayBatch):
    """Batch of Gymnasium's MountainCar-v0: the same seed and actions give the same bits.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        goal_velocity: Smallest velocity at which the car must arrive.
    """

    numbers = 2
    seconds_per_step = 1 / 30
    goal = 0.5
    """Position that ends an episode."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        max_episode_steps: int | None = 200,
        goal_velocity: float = 0,
    ):
        low = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
        high = np.array([MAX_POSITION, MAX_SPEED], np.float32)
        observation_space = spaces.Box(low, high, dtype=np.float32)
        limit = max_episode_steps
        super().__init__(
            env_id, num_envs, observation_space, self._actions(), max_episode_steps=limit
        )
        self._goal_velocity = goal_velocity

    def _actions(self) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        position = first_uniform(seeds, 1, *START)
        return np.concatenate([position, np.zeros_like(position)], axis=1)

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        position, velocity = state
        velocity = velocity + ((actions - 1) * 0.001 + cosine(3 * position) * -GRAVITY)
        velocity = np.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = np.clip(position + velocity, MIN_POSITION, MAX_POSITION)
        velocity = np.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity)
        terminated = (position >= self.goal) & (velocity >= self._goal_velocity)
        return Moved(np.stack([position, velocity]), np.full(self.num_envs, -1.0), terminated)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        return np.array(state.T, np.float32, order="C")

    def render(self, index: int = 0, width: int = 480, height: int = 320) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3): hills, car and goal."""
        position = float(self._state[0, index])
        canvas = Canvas(width, height, MIN_POSITION, 0.0, width / (MAX_POSITION - MIN_POSITION))
        canvas.curve(_height(canvas.columns), 0.012, BLACK)
        top = float(_height(np.array(self.goal)))
        canvas.line((self.goal, top), (self.goal, top + 0.15), 0.012, GREY)
        canvas.rectangle(self.goal, top + 0.1, 0.07, 0.05, GREEN)
        canvas.disc(position, float(_height(np.array(position))) + 0.04, 0.04, BLUE)
        return canvas.picture


class MountainCarContinuous(MountainCar):
    """Batch of Gymnasium's MountainCarContinuous-v0, with a continuous force.

    After its first step Gymnasium keeps the state in float32, and so does this class.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        goal_velocity: Smallest velocity at which the car must arrive.
    """

    goal = 0.45

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        max_episode_steps: int | None = 999,
        goal_velocity: float = 0,
    ):
        limit = max_episode_steps
        super().__init__(env_id, num_envs, max_episode_steps=limit, goal_velocity=goal_velocity)

    def _actions(self) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        low, high, fastest = (np.float32(x) for x in (MIN_POSITION, MAX_POSITION, MAX_SPEED))
        force = actions[:, 0].astype(np.float32)
        before, velocity = state
        first = self.elapsed == 0
        slope = np.where(first, 3 * before, 3 * before.astype(np.float32))
        pull = (GRAVITY * cosine(slope)).astype(np.float32)
        velocity = velocity.astype(np.float32) + (force * np.float32(0.0015) - pull)
        velocity = np.clip(velocity, -fastest, fastest)
        # Rounding a float64 sum of two float32 numbers gives their float32 sum.
        position = np.clip((before + velocity).astype(np.float32), low, high)
        velocity = np.where((position == low) & (velocity < 0), np.float32(0), velocity)
        terminated = (position >= np.float32(self.goal)) & (velocity >= self._goal_velocity)
        effort = np.square(force.astype(np.float64)) * 0.1
        reward = np.where(terminated, 100.0, 0.0) - effort
        return Moved(np.stack([position, velocity]).astype(np.float64), reward, terminated)


def _height(position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the height of the ground."""
    return np.sin(3 * position) * 0.45 + 0.55
