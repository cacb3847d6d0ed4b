"""Defines the locomotion tasks of Section 8.1: swimmer, hopper and walker.

The paper's model files are not published. These tasks have the bodies of Gymnasium's model files,
the paper's states (all generalized positions and velocities: 10, 12 and 18 numbers) and its rewards

    swimmer  v_x − 1e-5 ‖u‖²
    hopper   v_x − 1e-5 ‖u‖² + 1 until it has fallen
    walker   v_x − 1e-5 ‖u‖² + 1 until it has fallen, minus a penalty for strong foot impacts

where u are torques and v_x is the velocity of the torso (swimmer: of the centre of mass). A control
step is two implicit steps of 10 ms (swimmer: four) instead of Runge-Kutta steps. Options choose
other readings: `velocity`, `velocity_limit`, `action_unit`, `timestep` and `frame_skip`.
docs/paper/departures.md lists where these tasks depart from the paper, and compares the two
integrators.
"""

import functools
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from trellis import rng
from trellis.envs.mujoco import planar
from trellis.envs.mujoco.runners import coordinates, within
from trellis.envs.mujoco.task import MujocoTask, Outcome, Physics, TaskOptions, Values
from trellis.envs.mujoco.v5 import HOPPER_HEALTH, WALKER_HEALTH

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

CONTROL_COST = 1e-5
"""Weight of the control cost in r(x, u) = v_x − 1e-5 ‖u‖² (Sec. 8.1)."""
CHOICES = {
    "control_unit": ("torque", "normalized"),
    "action_unit": ("normalized", "torque"),
    "velocity": ("torso", "whole-body"),
}
"""Options that name one of several readings of the paper: the unit of u in the control cost, the
unit of actions, and what v_x is the velocity of."""
FEET = ("foot", "foot_left")
"""Names of the walker's feet in its model file."""


def load_model(path: str, o: TaskOptions) -> "mujoco.MjModel":
    """Return Gymnasium's model with an implicit integrator and the time step of the options."""
    return _spec(path, o).compile()


def load_walker(path: str, o: TaskOptions) -> "mujoco.MjModel":
    """Return the model of `load_model` with an additional touch sensor around each foot."""
    spec = _spec(path, o)
    for foot in FEET:
        sole = spec.geom(f"{foot}_geom")
        spec.body(foot).add_site(
            name=f"{foot}_sole",
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            pos=sole.pos,
            quat=sole.quat,
            # Contacts are on the surface of the foot, so a slightly larger site contains them all.
            size=1.2 * np.asarray(sole.size),
            group=4,
        )
        spec.add_sensor(
            name=f"{foot}_touch",
            type=mujoco.mjtSensor.mjSENS_TOUCH,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=f"{foot}_sole",
        )
    return spec.compile()


def _spec(path: str, o: TaskOptions) -> "mujoco.MjSpec":
    for name, choices in CHOICES.items():
        if getattr(o, name, choices[0]) not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {getattr(o, name)!r}")
    spec = mujoco.MjSpec.from_file(path)
    if o.action_unit == "torque":
        if o.control_unit != "torque":
            raise ValueError("control_unit must be torque if action_unit is, got 'normalized'")
        for actuator in spec.actuators:
            # Unbounded, because the policy's [-1, 1] would be stretched to bounds.
            actuator.ctrllimited, actuator.forcelimited = False, True
            actuator.forcerange = [-actuator.gear[0], actuator.gear[0]]
            actuator.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.timestep = o.timestep
    # For pictures only: an infinite floor, with one square of the pattern per metre.
    if (floor := spec.geom("floor")) is not None:
        floor.size = [0, 0, 1]
    if (tiles := spec.material("MatPlane")) is not None:
        tiles.texuniform, tiles.texrepeat = True, [1, 1]
    return spec


def start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return start states: the model's initial pose at rest, with uniform noise on all numbers."""
    scale = o.reset_noise_scale
    noise = rng.uniform(seeds, model.nq + model.nv, -scale, scale)
    return model.qpos0 + noise[:, : model.nq], noise[:, model.nq :]


def observe(physics: Physics, o: TaskOptions) -> Values:
    """Return qpos and qvel, with velocities clipped to ±`velocity_limit` if there is one."""
    observation = coordinates(physics, o)
    if o.velocity_limit is not None:
        velocity = observation[:, -physics.qvel.shape[1] :]
        np.clip(velocity, -o.velocity_limit, o.velocity_limit, out=velocity)
    return observation


def effort(actions: Values, physics: Physics, o: TaskOptions) -> Values:
    """Return the control cost 1e-5 ‖u‖²."""
    unit = physics.gear[:, None] if o.control_unit == "torque" else 1.0
    if o.action_unit == "torque":
        limit = physics.derived["torque_limit"]
        actions = np.clip(actions, -limit, limit)
    # Joint by joint, because the bits of a matrix product depend on the number of rows.
    u = np.multiply(actions.T, unit, order="C", dtype=np.float64)
    return o.ctrl_cost_weight * np.add.reduce(np.multiply(u, u, out=u), axis=0)


def links(model: Any) -> Values:
    """Return the weight of each link's cosine in the centre of mass of a chain of links.

    Link j carries its own mass at its middle and all masses behind it at its end.
    """
    mass = model.body_mass[1:]
    behind = mass.sum() - np.cumsum(mass)
    ends = np.append(model.body_pos[2:, 0], 0.0)
    return (mass * model.body_ipos[1:, 0] + behind * ends) / mass.sum()


def centre_of_mass(qpos: Values, links: Values) -> Values:
    """Return the x coordinate of the centre of mass, from x, y and the joint angles."""
    angle = np.cumsum(qpos[:, 2:], axis=1)
    return qpos[:, 0] + (np.cos(angle) * links).sum(axis=1)


def progress(physics: Physics, distance: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the reward v_x − 1e-5 ‖u‖² for a distance along x, without termination."""
    velocity = distance / physics.seconds
    cost = effort(actions, physics, o)
    info = {"x_position": physics.qpos[:, 0].copy(), "x_velocity": velocity, "reward_ctrl": -cost}
    return Outcome(velocity - cost, np.zeros(len(cost), bool), info)


def swim(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the swimmer's outcome: v_x − 1e-5 ‖u‖² with v_x of the centre of mass, no end."""
    links = physics.derived["links"]
    distance = centre_of_mass(physics.qpos, links) - centre_of_mass(before, links)
    return progress(physics, distance, actions, o)


def hop(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the hopper's outcome: v_x − 1e-5 ‖u‖² and a bonus, until the torso falls or leans."""
    x, height, angle = physics.qpos[:, :3].T
    distance = x - before[:, 0]
    if o.velocity == "whole-body":
        links = physics.derived["planar"][0].reshape(-1, planar.COLUMNS)
        distance = planar.centre_of_mass(physics.qpos, links)
        distance -= planar.centre_of_mass(before, links)
    reward, _, info = progress(physics, distance, actions, o)
    upright = within(height, o.healthy_z_range) & within(angle, o.healthy_angle_range)
    return Outcome(reward + o.healthy_reward * upright, ~upright, info)


def walk(physics: Physics, before: Values, actions: Values, o: TaskOptions) -> Outcome:
    """Return the walker's outcome: that of `hop`, minus a penalty for high loads on the feet.

    The penalty starts at `impact_threshold` body weights on a foot.
    """
    reward, fallen, info = hop(physics, before, actions, o)
    load = physics.derived["touch"] / physics.weight
    impact = np.maximum(load - o.impact_threshold, 0.0).sum(axis=1)
    penalty = -o.impact_coefficient * impact
    return Outcome(reward + penalty, fallen, {**info, "reward_impact": penalty})


_COMMON = {
    "ctrl_cost_weight": CONTROL_COST,
    "control_unit": "torque",
    "action_unit": "normalized",
    "velocity_limit": None,
    "exclude_current_positions_from_observation": False,
    "timestep": 0.01,
}
_UPRIGHT = {**_COMMON, "velocity": "torso", "reset_noise_scale": 5e-3, "healthy_reward": 1.0}
_task = functools.partial(MujocoTask, start=start, observe=observe, load=load_model)


def _torque_limit(batch: Any) -> Values:
    """Return the largest torque of each actuator if actions are torques, for every simulation."""
    limit = batch.model.actuator_forcerange[:, 1]
    return np.broadcast_to(limit, (batch.nsim, limit.size))


def _planar(batch: Any) -> Values:
    """Return the links of a planar body, for every simulation."""
    links = planar.planar_links(batch.model).ravel()
    return np.broadcast_to(links, (batch.nsim, links.size))


TASKS = {
    "trellis/PaperSwimmer-v0": _task(
        "swimmer.xml",
        frame_skip=4,
        outcome=swim,
        options={**_COMMON, "reset_noise_scale": 0.1},
        derived={
            "torque_limit": _torque_limit,
            "links": lambda batch: np.broadcast_to(
                links(batch.model), (batch.nsim, batch.model.nbody - 1)
            ),
        },
    ),
    "trellis/PaperHopper-v0": _task(
        "hopper.xml",
        frame_skip=2,
        outcome=hop,
        options={**_UPRIGHT, **HOPPER_HEALTH},
        derived={"planar": _planar, "torque_limit": _torque_limit},
    ),
    "trellis/PaperWalker-v0": _task(
        "walker2d_v5.xml",
        frame_skip=2,
        outcome=walk,
        options={
            **_UPRIGHT,
            **WALKER_HEALTH,
            "impact_coefficient": 0.25,
            "impact_threshold": 1.5,
        },
        derived={
            "touch": lambda batch: batch.bind("sensordata"),
            "planar": _planar,
            "torque_limit": _torque_limit,
        },
        load=load_walker,
    ),
}
