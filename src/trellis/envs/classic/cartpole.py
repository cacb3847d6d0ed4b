"""Implements cart-poles as NumPy batches: the paper's task (Sec. 8.1) and Gymnasium's CartPole-v1.

The dynamics are those of Barto, Sutton and Anderson (1983), with Euler steps of 20 ms. The paper's
task has their friction and a continuous force within ±10 N. So "a linear policy with six
parameters" has four weights, a bias and a log standard deviation. Gymnasium's task has no friction
and a force of 10 N to the left or to the right.
"""

import copy
import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis import rng
from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.streams import first_uniform

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
TOTAL_MASS = POLE_MASS + CART_MASS
HALF_LENGTH = 0.5
POLE_MOMENT = POLE_MASS * HALF_LENGTH
FORCE = 10.0
SECONDS = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = 12 * 2 * math.pi / 360
START = 0.05
"""Largest absolute value of the four numbers of the start state, which are uniform."""


def accelerations(
    state: NDArray[np.float64], force: NDArray[Any], cart_friction: float, pole_friction: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the accelerations of cart and pole (Barto et al. 1983, appendix).

    Args:
        state: x, ẋ, θ and θ̇ of n cart-poles, (4, n).
        force: Force on each cart in newtons.
        cart_friction: Friction coefficient of the cart.
        pole_friction: Friction coefficient of the pole.
    """
    _, velocity, angle, spin = state
    cos, sin = np.cos(angle), np.sin(angle)
    push = force + POLE_MOMENT * np.square(spin) * sin
    if cart_friction:
        push = push - cart_friction * np.sign(velocity)
    push = push / TOTAL_MASS
    turn = GRAVITY * sin - cos * push
    if pole_friction:
        turn = turn - pole_friction * spin / POLE_MOMENT
    turn = turn / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * np.square(cos) / TOTAL_MASS))
    return push - POLE_MOMENT * turn * cos / TOTAL_MASS, turn


class PaperCartPole(ArrayBatch):
    """Batch of the paper's cart-pole, with a continuous force.

    The force is the action, clipped to ±1, times 10 N. The reward is 1 per step until |x| > 2.4 m
    or |θ| > 12°.

    Args:
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
    """

    numbers = 4
    seconds_per_step = SECONDS
    task = "trellis/PaperCartPole-v0"
    actions: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
    dtype: type[np.floating[Any]] = np.float64
    """Precision of observations; the state is always float64."""
    friction = (5e-4, 2e-6)
    """Friction coefficients of the cart and of the pole."""

    def __init__(self, num_envs: int, *, max_episode_steps: int | None = 1000):
        # Twice the limits, so that the space contains the state that ends an episode.
        high = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], self.dtype)
        observation_space = spaces.Box(-high, high, dtype=self.dtype)
        action_space, limit = copy.deepcopy(self.actions), max_episode_steps
        super().__init__(
            self.task, num_envs, observation_space, action_space, max_episode_steps=limit
        )

    def _force(self, actions: NDArray[Any]) -> NDArray[Any]:
        return FORCE * actions[:, 0].astype(np.float64)

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        return rng.uniform(seeds, 4, -START, START)

    def _reward(self, fallen: NDArray[np.bool_]) -> NDArray[np.float64]:
        return (~fallen).astype(np.float64)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[Any]:
        return np.array(state.T, self.dtype, order="C")

    def _move(self, state: States, actions: NDArray[Any]) -> Moved:
        _, velocity, _, spin = state
        pull, turn = accelerations(state, self._force(actions), *self.friction)
        moved = state + SECONDS * np.stack([velocity, pull, spin, turn])
        x, _, angle, _ = moved
        fallen = (np.abs(x) > MAX_POSITION) | (np.abs(angle) > MAX_ANGLE)
        return Moved(moved, self._reward(fallen), fallen)

    def render(self, index: int = 0, width: int = 480, height: int = 320) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3): track, cart and pole."""
        x, _, angle, _ = self._state[:, index]
        scale = width / (2 * MAX_POSITION)
        # Coordinates in metres, relative to the axle of the cart.
        across = (np.arange(width)[None, :] - width / 2) / scale - x
        up = (0.7 * height - np.arange(height)[:, None]) / scale
        along = across * math.sin(angle) + up * math.cos(angle)
        beside = across * math.cos(angle) - up * math.sin(angle)
        picture = np.full((height, width, 3), 255, np.uint8)
        picture[np.broadcast_to(np.abs(up + 0.15) < 0.01, (height, width))] = 0
        picture[(np.abs(across) < 0.25) & (np.abs(up) < 0.15)] = (60, 60, 60)
        picture[(np.abs(beside) < 0.04) & (along > 0) & (along < 2 * HALF_LENGTH)] = (202, 152, 101)
        return picture


class CartPole(PaperCartPole):
    """Batch of Gymnasium's CartPole-v1: the same seed and actions give the same bits.

    Args:
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
        sutton_barto_reward: Whether the reward is −1 when the pole falls and 0 otherwise, instead
            of 1 per step.
    """

    task = "CartPole-v1"
    actions = spaces.Discrete(2)
    dtype = np.float32
    friction = (0.0, 0.0)

    def __init__(
        self,
        num_envs: int,
        *,
        max_episode_steps: int | None = 500,
        sutton_barto_reward: bool = False,
    ):
        super().__init__(num_envs, max_episode_steps=max_episode_steps)
        self._sutton_barto_reward = sutton_barto_reward

    def _force(self, actions: NDArray[Any]) -> NDArray[Any]:
        return np.where(actions == 1, FORCE, -FORCE)

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        return first_uniform(seeds, 4, -START, START)

    def _reward(self, fallen: NDArray[np.bool_]) -> NDArray[np.float64]:
        return -fallen.astype(np.float64) if self._sutton_barto_reward else np.ones(len(fallen))
