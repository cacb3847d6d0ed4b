"""Observations and outcomes of InvertedPendulum and InvertedDoublePendulum."""

import numpy as np

from trellis.envs.mujoco.task import Outcome, Physics, TaskOptions, Values


def double_pendulum_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return cart position, sines and cosines of angles, velocities, and the rail's end force."""
    qpos, qvel = physics.qpos, physics.qvel
    return np.concatenate(
        [
            qpos[:, :1],
            np.sin(qpos[:, 1:]),
            np.cos(qpos[:, 1:]),
            np.clip(qvel, -10, 10),
            np.clip(physics.derived["qfrc_constraint"][:, :1], -10, 10),
        ],
        axis=1,
    )


def pendulum_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the pendulum's outcome: reward 1 until the pole leans more than 0.2 rad."""
    fallen = np.abs(physics.qpos[:, 1]) > 0.2
    reward = 1.0 - fallen
    return Outcome(reward, fallen, {"reward_survive": reward})


def double_pendulum_outcome(
    physics: Physics, before: Values, actions: Values, o: TaskOptions
) -> Outcome:
    """Return the double pendulum's outcome.

    The reward is a bonus while the tip is high, minus penalties on its distance from the top and on
    the angular velocities.
    """
    x, _, y = physics.derived["tip"].T
    fallen = y <= 1
    distance = 0.01 * x**2 + (y - 2) ** 2
    speed = 1e-3 * physics.qvel[:, 1] ** 2 + 5e-3 * physics.qvel[:, 2] ** 2
    survive = o.healthy_reward * ~fallen
    info = {"reward_survive": survive, "distance_penalty": -distance, "velocity_penalty": -speed}
    return Outcome(survive - distance - speed, fallen, info)
