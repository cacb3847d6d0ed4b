"""Observations and outcomes of the planar runners: Swimmer, Hopper, Walker2d and HalfCheetah."""

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import Outcome, Physics, TaskOptions, Values


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
    np.maximum(velocity, -10.0, out=velocity)
    np.minimum(velocity, 10.0, out=velocity)
    return observation


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
    inside = values > limits[0]
    inside &= values < limits[1]
    return inside


def walker_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the outcome of hopper and walker; they terminate when they are unhealthy.

    The reward is forward velocity plus a bonus for health, minus the control cost.
    """
    coordinates = physics.coordinates.T.copy()
    z, angle = coordinates[1], coordinates[2]
    healthy = within(z, o.healthy_z_range)
    healthy &= within(angle, o.healthy_angle_range)
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
