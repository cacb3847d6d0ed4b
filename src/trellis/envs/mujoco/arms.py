"""Starts, observations and outcomes of the robot arms: Reacher and Pusher."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.runners import control_cost
from trellis.envs.mujoco.task import Outcome, Physics, TaskOptions, Values


def reacher_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return Reacher's start: an arm near its zero position, and a goal within radius 0.2."""
    qpos, qvel = np.empty((len(seeds), model.nq)), np.empty((len(seeds), model.nv))
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        qpos[row] = model.qpos0 + rng.uniform(-0.1, 0.1, model.nq)
        goal = rng.uniform(-0.2, 0.2, 2)
        while np.linalg.norm(goal) >= 0.2:
            goal = rng.uniform(-0.2, 0.2, 2)
        qpos[row, -2:] = goal
        qvel[row] = rng.uniform(-0.005, 0.005, model.nv)
    qvel[:, -2:] = 0
    return qpos, qvel


def reacher_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return cosines and sines of angles, goal, angular velocities, and fingertip minus goal."""
    angle = physics.qpos[:, :2]
    away = physics.derived["fingertip"] - physics.derived["target"]
    return np.concatenate(
        [np.cos(angle), np.sin(angle), physics.qpos[:, 2:], physics.qvel[:, :2], away[:, :2]],
        axis=1,
    )


def reacher_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return Reacher's outcome: minus the fingertip's distance from its goal and control cost."""
    away = physics.derived["fingertip"] - physics.derived["target"]
    distance = -np.sqrt(np.square(away).sum(axis=1)) * o.reward_dist_weight
    cost = -control_cost(actions, o.reward_control_weight)
    info = {"reward_dist": distance, "reward_ctrl": cost}
    return Outcome(distance + cost, np.zeros(len(away), bool), info)


def pusher_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return Pusher's start: a resting arm, and an object more than 0.17 away from the goal."""
    qpos, qvel = np.tile(model.qpos0, (len(seeds), 1)), np.empty((len(seeds), model.nv))
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        cylinder = np.zeros(2)
        while np.linalg.norm(cylinder) <= 0.17:
            cylinder = np.concatenate([rng.uniform(-0.3, 0, 1), rng.uniform(-0.2, 0.2, 1)])
        qpos[row, -4:-2] = cylinder
        qvel[row] = rng.uniform(-0.005, 0.005, model.nv)
    qpos[:, -2:] = 0
    qvel[:, -4:] = 0
    return qpos, qvel


def pusher_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return the arm's angles and velocities, and the positions of its tip, object and goal."""
    places = [physics.derived[name] for name in ("tips_arm", "object", "goal")]
    return np.concatenate([physics.qpos[:, :7], physics.qvel[:, :7], *places], axis=1)


def pusher_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return Pusher's outcome: minus distances tip–object and object–goal and control cost."""

    def distance(a: str, b: str) -> Values:
        return np.sqrt(np.square(physics.derived[a] - physics.derived[b]).sum(axis=1))

    near = -distance("object", "tips_arm") * o.reward_near_weight
    away = -distance("object", "goal") * o.reward_dist_weight
    cost = -control_cost(actions, o.reward_control_weight)
    info = {"reward_dist": away, "reward_ctrl": cost, "reward_near": near}
    return Outcome(away + cost + near, np.zeros(len(away), bool), info)
