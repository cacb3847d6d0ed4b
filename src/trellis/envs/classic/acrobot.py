"""Implements Gymnasium's Acrobot-v1 as a NumPy batch.

Two links hang from a joint, and a torque at the joint between them swings them up (Sutton, 1996).
The equations and their order are Gymnasium's, so that results agree bit for bit.
"""

import itertools
import math

import numpy as np
from gymnasium import spaces
from numpy import cos, pi, sin
from numpy.typing import NDArray

from trellis.envs.classic.array_batch import ArrayBatch, Moved, States
from trellis.envs.classic.canvas import BLACK, GOLD, GREY, RED, Canvas
from trellis.envs.classic.streams import first_uniform

SECONDS = 0.2
MASS = 1.0
LENGTH = 1.0
CENTRE = 0.5
"""Distance from a joint to the centre of mass of its link."""
INERTIA = 1.0
GRAVITY = 9.8
MAX_SPINS = 4 * pi, 9 * pi
"""Largest angular velocities of the two joints."""
START = 0.1
TORQUES = np.array([-1.0, 0.0, 1.0])


def square(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `value ** 2` as NumPy computes it for one number at a time: with C's `pow`.

    For an array NumPy multiplies, which differs in the last bit for one number in a thousand.
    """
    return np.fromiter(map(math.pow, values.tolist(), itertools.repeat(2.0)), float, len(values))


def derivatives(state: States, torque: NDArray[np.float64]) -> States:
    """Return the time derivatives of both angles and both angular velocities, (4, n)."""
    angle1, angle2, spin1, spin2 = state
    m, r, c, inertia, g = MASS, LENGTH, CENTRE, INERTIA, GRAVITY
    cos2, sin2 = cos(angle2), sin(angle2)
    d1 = m * c**2 + m * (r**2 + c**2 + 2 * r * c * cos2) + inertia + inertia
    d2 = m * (c**2 + r * c * cos2) + inertia
    phi2 = m * c * g * cos(angle1 + angle2 - pi / 2.0)
    phi1 = (
        -m * r * c * square(spin2) * sin2
        - 2 * m * r * c * spin2 * spin1 * sin2
        + (m * c + m * r) * g * cos(angle1 - pi / 2)
        + phi2
    )
    push = torque + d2 / d1 * phi1 - m * r * c * square(spin1) * sin2 - phi2
    turn2 = push / (m * c**2 + inertia - square(d2) / d1)
    turn1 = -(d2 * turn2 + phi1) / d1
    return np.stack([spin1, spin2, turn1, turn2])


class Acrobot(ArrayBatch):
    """Batch of Gymnasium's Acrobot-v1: the same seed and actions give the same bits.

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        max_episode_steps: Time limit; None for no limit.
    """

    numbers = 4
    largest = max(MAX_SPINS)  # Angles stay within ±π.
    seconds_per_step = 1 / 15

    def __init__(self, env_id: str, num_envs: int, *, max_episode_steps: int | None = 500):
        high = np.array([1.0, 1.0, 1.0, 1.0, *MAX_SPINS], np.float32)
        spaces_ = spaces.Box(-high, high, dtype=np.float32), spaces.Discrete(3)
        super().__init__(env_id, num_envs, *spaces_, max_episode_steps=max_episode_steps)

    def _start(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        return first_uniform(seeds, 4, -START, START).astype(np.float32).astype(np.float64)

    def _move(self, state: States, actions: NDArray[np.int64]) -> Moved:
        torque, dt = TORQUES[actions], SECONDS
        k1 = derivatives(state, torque)
        k2 = derivatives(state + dt / 2.0 * k1, torque)
        k3 = derivatives(state + dt / 2.0 * k2, torque)
        k4 = derivatives(state + dt * k3, torque)
        moved = state + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        moved[:2] = _wrap(moved[:2])
        high = np.array(MAX_SPINS)[:, None]
        moved[2:] = np.minimum(np.maximum(moved[2:], -high), high)
        terminated = -cos(moved[0]) - cos(moved[1] + moved[0]) > 1.0
        return Moved(moved, np.where(terminated, 0.0, -1.0), terminated)

    def _observe(self, state: States, first: NDArray[np.bool_]) -> NDArray[np.float32]:
        angles = np.ascontiguousarray(state[:2])
        trig = np.stack([cos(angles), sin(angles)], axis=1).reshape(4, -1).astype(np.float32)
        if first.any():
            # Gymnasium's first state is float32, and so are its sine and cosine.
            start = angles[:, first].astype(np.float32)
            trig[:, first] = np.stack([cos(start), sin(start)], axis=1).reshape(4, -1)
        return np.concatenate([trig, state[2:].astype(np.float32)]).T.copy()

    def render(self, index: int = 0, size: int = 480) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (size, size, 3): goal line and links."""
        angle1, angle2, _, _ = self._state[:, index].tolist()
        canvas = Canvas(size, size, -2.2, -2.2, size / 4.4)
        canvas.line((-2.2, 1.0), (2.2, 1.0), 0.02, BLACK)
        elbow = LENGTH * math.sin(angle1), -LENGTH * math.cos(angle1)
        both = angle1 + angle2
        tip = elbow[0] + LENGTH * math.sin(both), elbow[1] - LENGTH * math.cos(both)
        canvas.line((0.0, 0.0), elbow, 0.2, GREY)
        canvas.line(elbow, tip, 0.2, GOLD)
        for x, y in ((0.0, 0.0), elbow):
            canvas.disc(x, y, 0.1, RED)
        return canvas.picture


def _wrap(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles within ±π; whole turns are added one by one, as Gymnasium does."""
    while (over := angles > pi).any():
        angles = np.where(over, angles - 2 * pi, angles)
    while (under := angles < -pi).any():
        angles = np.where(under, angles + 2 * pi, angles)
    return angles
