"""Defines Gymnasium's MuJoCo tasks, version 5, as functions over whole batches.

The formulas, their order of operations and their defaults are Gymnasium's, and the tests compare
the results with Gymnasium's to 1e-9. The control cost is computed in the precision of the action,
as in Gymnasium. Ant and Humanoid are missing. They observe `cfrc_ext`, which Gymnasium computes
after the step (mj_rnePostConstraint) from constraint forces that a batch does not provide.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import MujocoTask, Outcome, Physics, TaskOptions, Values

# Start of an episode: the random numbers of gymnasium.make(id).reset(seed=seed), in its order.


def uniform_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return start positions and velocities with uniform noise within ± reset_noise_scale."""
    noise = np.empty((len(seeds), model.nq + model.nv))
    for row, seed in zip(noise, seeds.tolist(), strict=True):
        np.random.default_rng(seed).random(out=row)
    noise = -o.reset_noise_scale + 2 * o.reset_noise_scale * noise
    return model.qpos0 + noise[:, : model.nq], noise[:, model.nq :]


def normal_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return start positions with uniform noise and velocities with normal noise.

    `reset_noise_scale` is the bound of the uniform noise and the std of the normal noise.
    """
    qpos, qvel = np.empty((len(seeds), model.nq)), np.empty((len(seeds), model.nv))
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        qpos[row] = rng.uniform(-o.reset_noise_scale, o.reset_noise_scale, model.nq)
        qvel[row] = o.reset_noise_scale * rng.standard_normal(model.nv)
    return model.qpos0 + qpos, qvel


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


# Observations.


def coordinates(physics: Physics, o: TaskOptions, *, hidden: int = 1) -> Values:
    """Return qpos and qvel as observations.

    Args:
        physics: State of the simulations.
        o: Options; `exclude_current_positions_from_observation` leaves out the first positions.
        hidden: Number of positions to leave out in that case.
    """
    exclude = getattr(o, "exclude_current_positions_from_observation", False)
    return physics.coordinates[:, hidden if exclude else 0 :].copy()


def clipped_coordinates(physics: Physics, o: TaskOptions) -> Values:
    """Return qpos, by default without x, and qvel clipped to ±10."""
    observation = coordinates(physics, o)
    velocity = observation[:, -physics.qvel.shape[1] :]
    np.clip(velocity, -10.0, 10.0, out=velocity)
    return observation


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


def reacher_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return cosines and sines of angles, goal, angular velocities, and fingertip minus goal."""
    angle = physics.qpos[:, :2]
    away = physics.derived["fingertip"] - physics.derived["target"]
    return np.concatenate(
        [np.cos(angle), np.sin(angle), physics.qpos[:, 2:], physics.qvel[:, :2], away[:, :2]],
        axis=1,
    )


# Outcomes of a step.


def control_cost(actions: Values, weight: float) -> Values:
    """Return the control cost weight·‖action‖², in the precision of the actions."""
    return weight * np.square(actions).sum(axis=1)


def progress(
    physics: Physics, before: Values, actions: Values, o: TaskOptions
) -> tuple[Values, Values, dict[str, Values]]:
    """Return the reward for forward velocity, the control cost, and the quantities to report."""
    x = physics.qpos[:, 0].copy()
    velocity = (x - before[:, 0]) / physics.seconds
    forward = o.forward_reward_weight * velocity
    cost = control_cost(actions, o.ctrl_cost_weight)
    info = {
        "x_position": x,
        "x_velocity": velocity,
        "reward_forward": forward,
        "reward_ctrl": -cost,
    }
    return forward, cost, info


def runner_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the reward of a runner: forward velocity minus control cost, without termination."""
    forward, cost, info = progress(physics, before, actions, o)
    return Outcome(forward - cost, np.zeros(len(forward), bool), info)


def swimmer_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the outcome of `runner_outcome`, and report the y coordinate too."""
    outcome = runner_outcome(physics, before, actions, o)
    y = physics.qpos[:, 1].copy()
    outcome.info["y_position"] = y
    outcome.info["y_velocity"] = (y - before[:, 1]) / physics.seconds
    outcome.info["distance_from_origin"] = np.hypot(outcome.info["x_position"], y)
    return outcome


def within(values: Values, limits: tuple[float, float]) -> NDArray[np.bool_]:
    """Return whether each value is strictly between the limits."""
    return (values > limits[0]) & (values < limits[1])


def walker_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the outcome of hopper and walker; they terminate when they are unhealthy.

    The reward is forward velocity plus a bonus for health, minus the control cost.
    """
    coordinates = physics.coordinates.T.copy()
    _, z, angle = coordinates[:3]
    healthy = within(z, o.healthy_z_range) & within(angle, o.healthy_angle_range)
    if hasattr(o, "healthy_state_range"):
        low, high = o.healthy_state_range
        rest = coordinates[2:]
        healthy &= (np.minimum.reduce(rest) > low) & (np.maximum.reduce(rest) < high)
    forward, cost, info = progress(physics, before, actions, o)
    survive = healthy * o.healthy_reward
    info["z_distance_from_origin"] = z - physics.initial_qpos[1]
    info["reward_survive"] = survive
    terminated = ~healthy & o.terminate_when_unhealthy
    return Outcome(forward + survive - cost, terminated, info)


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


def reacher_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return Reacher's outcome: minus the fingertip's distance from its goal and control cost."""
    away = physics.derived["fingertip"] - physics.derived["target"]
    distance = -np.sqrt(np.square(away).sum(axis=1)) * o.reward_dist_weight
    cost = -control_cost(actions, o.reward_control_weight)
    info = {"reward_dist": distance, "reward_ctrl": cost}
    return Outcome(distance + cost, np.zeros(len(away), bool), info)


_RUNNER = {
    "forward_reward_weight": 1.0,
    "reset_noise_scale": 0.1,
    "exclude_current_positions_from_observation": True,
}
_WALKER = {
    **_RUNNER,
    "ctrl_cost_weight": 1e-3,
    "healthy_reward": 1.0,
    "terminate_when_unhealthy": True,
    "reset_noise_scale": 5e-3,
}
HOPPER_HEALTH = {"healthy_z_range": (0.7, np.inf), "healthy_angle_range": (-0.2, 0.2)}
WALKER_HEALTH = {"healthy_z_range": (0.8, 2.0), "healthy_angle_range": (-1.0, 1.0)}
_walker = functools.partial(
    MujocoTask,
    frame_skip=4,
    start=uniform_start,
    observe=clipped_coordinates,
    outcome=walker_outcome,
)

TASKS = {
    "InvertedPendulum-v5": MujocoTask(
        "inverted_pendulum.xml",
        frame_skip=2,
        start=uniform_start,
        observe=coordinates,
        outcome=pendulum_outcome,
        options={"reset_noise_scale": 0.01},
    ),
    "InvertedDoublePendulum-v5": MujocoTask(
        "inverted_double_pendulum.xml",
        frame_skip=5,
        start=normal_start,
        observe=double_pendulum_observation,
        outcome=double_pendulum_outcome,
        options={"healthy_reward": 10.0, "reset_noise_scale": 0.1},
        derived={
            "qfrc_constraint": lambda batch: batch.bind("qfrc_constraint"),
            "tip": lambda batch: batch.bind("site_xpos")[:, 0],
        },
        forward_at_reset=True,
    ),
    "Reacher-v5": MujocoTask(
        "reacher.xml",
        frame_skip=2,
        max_episode_steps=50,
        start=reacher_start,
        observe=reacher_observation,
        outcome=reacher_outcome,
        options={"reward_dist_weight": 1.0, "reward_control_weight": 1.0},
        derived={
            "fingertip": lambda batch: batch.body("fingertip").xpos,
            "target": lambda batch: batch.body("target").xpos,
        },
        forward_at_reset=True,
    ),
    "Swimmer-v5": MujocoTask(
        "swimmer.xml",
        frame_skip=4,
        start=uniform_start,
        observe=functools.partial(coordinates, hidden=2),
        outcome=swimmer_outcome,
        options={**_RUNNER, "ctrl_cost_weight": 1e-4},
    ),
    "HalfCheetah-v5": MujocoTask(
        "half_cheetah.xml",
        frame_skip=5,
        start=normal_start,
        observe=coordinates,
        outcome=runner_outcome,
        options={**_RUNNER, "ctrl_cost_weight": 0.1},
    ),
    "Hopper-v5": _walker(
        "hopper.xml",
        options={**_WALKER, **HOPPER_HEALTH, "healthy_state_range": (-100.0, 100.0)},
    ),
    "Walker2d-v5": _walker("walker2d_v5.xml", options={**_WALKER, **WALKER_HEALTH}),
}
