"""Observations and outcomes of the planar runners: Swimmer, Hopper, Walker2d and HalfCheetah."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import Outcome, Physics, Reported, TaskOptions, Values


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
    return weight * np.add.reduce(np.square(actions), axis=1)


class Progress(NamedTuple):
    """Forward motion and control cost of a step."""

    x: Values
    """Position after the step."""
    velocity: Values
    """Mean velocity of the step."""
    forward: Values
    """Reward for the velocity."""
    cost: Values
    """Control cost of each environment."""

    def report(self) -> dict[str, Values]:
        """Return the quantities to report."""
        return {
            "x_position": self.x,
            "x_velocity": self.velocity,
            "reward_forward": self.forward,
            "reward_ctrl": -self.cost,
        }


def progress(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Progress:
    """Return the reward for forward velocity and the control cost."""
    x = physics.qpos[:, 0].copy()
    velocity = (x - before[:, 0]) / physics.seconds
    cost = control_cost(actions, o.ctrl_cost_weight)
    return Progress(x, velocity, o.forward_reward_weight * velocity, cost)


def runner_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the reward of a runner: forward velocity minus control cost, without termination."""
    moved = progress(physics, before, actions, o)
    return Outcome(moved.forward - moved.cost, never(physics, o), Reported(moved.report))


def swimmer_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the outcome of `runner_outcome`, and report the y coordinate too."""
    moved = progress(physics, before, actions, o)
    y = physics.qpos[:, 1].copy()

    def report() -> dict[str, Values]:
        speed = (y - before[:, 1]) / physics.seconds
        distance = np.hypot(moved.x, y)
        more = {"y_position": y, "y_velocity": speed, "distance_from_origin": distance}
        return moved.report() | more

    return Outcome(moved.forward - moved.cost, never(physics, o), Reported(report))


def within(values: Values, limits: tuple[float, float]) -> NDArray[np.bool_]:
    """Return whether each value is strictly between the limits."""
    inside = values > limits[0]
    inside &= values < limits[1]
    return inside


def health_limits(o: TaskOptions, size: int) -> tuple[Values, Values]:
    """Return bounds of all coordinates of a healthy body, lowest and highest; they are exclusive.

    Args:
        o: Options with the ranges of height and angle, and for the hopper of everything after x
            and z.
        size: Number of coordinates.
    """
    low, high = np.full(size, -np.inf), np.full(size, np.inf)
    if hasattr(o, "healthy_state_range"):
        low[2:], high[2:] = o.healthy_state_range
    for index, limits in ((1, o.healthy_z_range), (2, o.healthy_angle_range)):
        low[index], high[index] = max(low[index], limits[0]), min(high[index], limits[1])
    return low, high


def is_healthy(physics: Physics, o: TaskOptions) -> NDArray[np.bool_]:
    """Return whether all coordinates of each body, except x, are within their limits.

    A coordinate that is not finite is not healthy.
    """
    values, limits = physics.coordinates[:, 1:], getattr(o, "_limits", None)
    if limits is None:
        low, high = health_limits(o, physics.coordinates.shape[1])
        limits = o._limits = low[1:], high[1:]
    inside = values > limits[0]
    inside &= values < limits[1]
    return np.logical_and.reduce(inside, axis=1)


def never(physics: Physics, o: TaskOptions) -> NDArray[np.bool_]:
    """Return False for each body: the task has no terminal states."""
    del o
    return np.zeros(len(physics.qpos), bool)


def walker_terminated(physics: Physics, o: TaskOptions) -> NDArray[np.bool_]:
    """Return whether each hopper or walker is unhealthy, if this ends an episode."""
    return ~is_healthy(physics, o) if o.terminate_when_unhealthy else never(physics, o)


def walker_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the outcome of hopper and walker; they terminate when they are unhealthy.

    The reward is forward velocity plus a bonus for health, minus the control cost.
    """
    healthy = is_healthy(physics, o)
    moved = progress(physics, before, actions, o)
    survive = healthy * o.healthy_reward
    z = physics.qpos[:, 1].copy()

    def report() -> dict[str, Values]:
        above = z - physics.initial_qpos[1]
        return moved.report() | {"z_distance_from_origin": above, "reward_survive": survive}

    terminated = ~healthy if o.terminate_when_unhealthy else np.zeros_like(healthy)
    reward = moved.forward + survive
    reward -= moved.cost
    return Outcome(reward, terminated, Reported(report))
