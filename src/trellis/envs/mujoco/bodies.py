"""Observations and outcomes of the bodies in space: Ant, Humanoid and HumanoidStandup.

They observe `cfrc_ext`, the contact force on each body, and their velocity is the change of a
derived position (a body's, or the centre of mass), which lags one substep behind `qpos`.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.envs.mujoco.runners import control_cost, coordinates, within
from trellis.envs.mujoco.task import Batch, Outcome, Physics, TaskOptions, Values

HUMANOID_DERIVED = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext", "ten_length", "ten_velocity")
"""Arrays of MjData that both humanoid tasks use."""


def bound(*names: str) -> dict[str, Callable[[Batch], Values]]:
    """Return a table that binds arrays of MjData by their own names."""
    return {name: functools.partial(_bind, name) for name in names}


def _bind(name: str, batch: Batch) -> Values:
    return batch.bind(name)


def main_body_position(physics: Physics, model: Any, o: TaskOptions) -> Values:
    """Return the x and y of Ant's main body."""
    return physics.derived["xpos"][:, model.body(o.main_body).id, :2].copy()


def mass_center(physics: Physics, model: Any, o: TaskOptions) -> Values:
    """Return the x and y of the centre of mass."""
    moment = np.einsum("b,nbj->nj", model.body_mass, physics.derived["xipos"][:, :, :2])
    return moment / model.body_mass.sum()


def _flat(values: Values) -> Values:
    """Return one row per environment; the first body is the world, which is left out."""
    return values[:, 1:].reshape(len(values), (values.shape[1] - 1) * values.shape[2])


def ant_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return qpos, by default without x and y, qvel, and clipped contact forces."""
    state = coordinates(physics, o, hidden=2)
    if not o.include_cfrc_ext_in_observation:
        return state
    forces = np.clip(physics.derived["cfrc_ext"], *o.contact_force_range)
    return np.concatenate([state, _flat(forces)], axis=1)


def humanoid_observation(physics: Physics, o: TaskOptions) -> Values:
    """Return qpos, by default without x and y, qvel, inertias, velocities and forces of bodies."""
    derived = physics.derived
    parts = [coordinates(physics, o, hidden=2)]
    if o.include_cinert_in_observation is True:
        parts.append(_flat(derived["cinert"]))
    if o.include_cvel_in_observation is True:
        parts.append(_flat(derived["cvel"]))
    if o.include_qfrc_actuator_in_observation is True:
        parts.append(derived["qfrc_actuator"][:, 6:])  # the free joint has no actuators
    if o.include_cfrc_ext_in_observation is True:
        parts.append(_flat(derived["cfrc_ext"]))
    return np.concatenate(parts, axis=1)


def _moved(physics: Physics, before: Values, after: Values) -> dict[str, Values]:
    """Return position and velocity as quantities to report."""
    velocity = (after - before) / physics.seconds
    x, y = physics.qpos[:, :2].T.copy()
    return {
        "x_position": x,
        "y_position": y,
        "distance_from_origin": np.sqrt(x * x + y * y),
        "x_velocity": velocity[:, 0],
        "y_velocity": velocity[:, 1],
    }


def _squares(values: Values) -> Values:
    """Return the sum of squares of each row."""
    return np.square(values).sum(axis=tuple(range(1, values.ndim)))


def ant_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return Ant's outcome: forward velocity plus health, minus control and contact costs."""
    info = _moved(physics, before, physics.position)
    low, high = o.healthy_z_range
    z = physics.qpos[:, 2]
    healthy = np.isfinite(physics.coordinates).all(axis=1) & (low <= z) & (z <= high)
    forward = info["x_velocity"] * o.forward_reward_weight
    survive = healthy * o.healthy_reward
    cost = control_cost(actions, o.ctrl_cost_weight)
    forces = np.clip(physics.derived["cfrc_ext"], *o.contact_force_range)
    contact = o.contact_cost_weight * _squares(forces)
    info |= {
        "reward_forward": forward,
        "reward_ctrl": -cost,
        "reward_contact": -contact,
        "reward_survive": survive,
    }
    terminated = ~healthy & o.terminate_when_unhealthy
    return Outcome(forward + survive - (cost + contact), terminated, info)


def humanoid_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return Humanoid's outcome: forward velocity plus health, minus control and contact costs."""
    info = _moved(physics, before, physics.position) | _tendons(physics)
    healthy = within(physics.qpos[:, 2], o.healthy_z_range)
    forward = o.forward_reward_weight * info["x_velocity"]
    survive = healthy * o.healthy_reward
    cost = control_cost(actions.astype(np.float64), o.ctrl_cost_weight)
    contact = o.contact_cost_weight * _squares(physics.derived["cfrc_ext"])
    contact = np.clip(contact, *o.contact_cost_range)
    info |= {
        "reward_survive": survive,
        "reward_forward": forward,
        "reward_ctrl": -cost,
        "reward_contact": -contact,
    }
    terminated = ~healthy & o.terminate_when_unhealthy
    return Outcome(forward + survive - (cost + contact), terminated, info)


def standup_outcome(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return HumanoidStandup's outcome: height per time, minus control and impact costs, plus 1."""
    z = physics.qpos[:, 2].copy()
    up = z / (physics.seconds / o.frame_skip)
    cost = control_cost(actions.astype(np.float64), o.ctrl_cost_weight)
    impact = o.impact_cost_weight * _squares(physics.derived["cfrc_ext"])
    impact = np.clip(impact, *o.impact_cost_range)
    x, y = physics.qpos[:, :2].T.copy()
    info = {
        "x_position": x,
        "y_position": y,
        "z_distance_from_origin": z - physics.initial_qpos[2],
        **_tendons(physics),
        "reward_linup": up,
        "reward_quadctrl": -cost,
        "reward_impact": -impact,
    }
    return Outcome(up - cost - impact + 1, np.zeros(len(z), bool), info)


def _tendons(physics: Physics) -> dict[str, Values]:
    """Return lengths and velocities of tendons as quantities to report."""
    length, velocity = physics.derived["ten_length"], physics.derived["ten_velocity"]
    return {"tendon_length": length.copy(), "tendon_velocity": velocity.copy()}
