"""The locomotion tasks of Section 8.1: swimmer, hopper and walker.

The paper's model files are not published. These are the same bodies from Gymnasium's package, the
states as the paper has them (all generalized positions and velocities: 10, 12 and 18 numbers), and
its rewards,

    swimmer  v_x − 1e-5 ‖u‖²
    hopper   v_x − 1e-5 ‖u‖² + 1 until it has fallen
    walker   the same, less a penalty for strong impacts of the feet

with u in torques and v_x that of the torso (swimmer: of the centre of mass). A control step is two
implicit steps of 10 ms (swimmer: four) in place of Runge-Kutta's; docs/environments.md compares the
two and argues the defaults.
"""

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from trellis.envs import seeding
from trellis.envs.mujoco.batch import Array, MujocoBatch, Options, Outcome, Physics, Task

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

CONTROL_COST = 1e-5
"""Sec. 8.1: r(x, u) = v_x − 1e-5 ‖u‖²."""
UNITS = ("torque", "normalized")
FEET = ("foot", "foot_left")


def make(env_id: str, num_envs: int, *, nthread: int = 0, **options: Any) -> MujocoBatch:
    """A batch of one of `TASKS`."""
    return MujocoBatch(env_id, TASKS[env_id], num_envs, nthread=nthread, **options)


def load(path: str, o: Options) -> "mujoco.MjModel":
    """Gymnasium's model with our integrator and step."""
    return _spec(path, o).compile()


def load_walker(path: str, o: Options) -> "mujoco.MjModel":
    """As `load`, and a touch sensor around each foot."""
    spec = _spec(path, o)
    for foot in FEET:
        sole = spec.geom(f"{foot}_geom")
        spec.body(foot).add_site(
            name=f"{foot}_sole",
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            pos=sole.pos,
            quat=sole.quat,
            # Contacts lie on the surface of the foot: a little more room takes them all in.
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


def _spec(path: str, o: Options) -> "mujoco.MjSpec":
    if o.control_unit not in UNITS:
        raise ValueError(f"control_unit must be one of {UNITS}, got {o.control_unit!r}")
    spec = mujoco.MjSpec.from_file(path)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.timestep = o.timestep
    # Looks alone: a floor without an edge in sight, one square of the pattern a metre.
    if (floor := spec.geom("floor")) is not None:
        floor.size = [0, 0, 1]
    if (tiles := spec.material("MatPlane")) is not None:
        tiles.texuniform, tiles.texrepeat = True, [1, 1]
    return spec


def start(seeds: NDArray[np.int64], model: Any, o: Options) -> tuple[Array, Array]:
    """The model's pose at rest, with uniform noise on positions and velocities."""
    scale = o.reset_noise_scale
    noise = seeding.uniform(seeds, model.nq + model.nv, -scale, scale)
    return model.qpos0 + noise[:, : model.nq], noise[:, model.nq :]


def observe(physics: Physics, o: Options) -> Array:
    """All generalized positions and velocities; without x if that is asked for."""
    skip = 1 if o.exclude_current_positions_from_observation else 0
    return physics.coordinates[:, skip:].copy()


def effort(actions: Array, physics: Physics, o: Options) -> Array:
    """1e-5 ‖u‖²."""
    unit = physics.gear[:, None] if o.control_unit == "torque" else 1.0
    # Joint by joint, not as a matrix product: its bits would depend on how many rows there are.
    u = np.multiply(actions.T, unit, order="C", dtype=np.float64)
    return o.ctrl_cost_weight * np.add.reduce(np.multiply(u, u, out=u), axis=0)


def links(model: Any) -> Array:
    """What each link adds to the centre of mass of a chain along x, for each cosine of its angle.

    Link j carries its own mass at its middle and all masses behind it at its end.
    """
    mass = model.body_mass[1:]
    behind = mass.sum() - np.cumsum(mass)
    ends = np.append(model.body_pos[2:, 0], 0.0)
    return (mass * model.body_ipos[1:, 0] + behind * ends) / mass.sum()


def centre_of_mass(qpos: Array, links: Array) -> Array:
    """Its x, from x, y and the angles of the joints."""
    angle = np.cumsum(qpos[:, 2:], axis=1)
    return qpos[:, 0] + (np.cos(angle) * links).sum(axis=1)


def swim(physics: Physics, before: Array, actions: Array, o: Options) -> Outcome:
    """v_x − 1e-5 ‖u‖², without an end; v_x is that of the centre of mass."""
    links = physics.derived["links"]
    way = centre_of_mass(physics.qpos, links) - centre_of_mass(before, links)
    velocity = way / physics.seconds
    cost = effort(actions, physics, o)
    info = {
        "x_position": physics.qpos[:, 0].copy(),
        "x_velocity": velocity,
        "reward_ctrl": -cost,
    }
    return Outcome(velocity - cost, np.zeros(len(cost), bool), info)


def hop(physics: Physics, before: Array, actions: Array, o: Options) -> Outcome:
    """v_x − 1e-5 ‖u‖² and a bonus until the torso is too low or leans too far, which ends it."""
    x, height, angle = physics.qpos[:, 0].copy(), physics.qpos[:, 1], physics.qpos[:, 2]
    velocity = (x - before[:, 0]) / physics.seconds
    cost = effort(actions, physics, o)
    (low, high), (back, front) = o.healthy_z_range, o.healthy_angle_range
    upright = (height > low) & (height < high) & (angle > back) & (angle < front)
    info = {"x_position": x, "x_velocity": velocity, "reward_ctrl": -cost}
    return Outcome(velocity - cost + o.healthy_reward * upright, ~upright, info)


def walk(physics: Physics, before: Array, actions: Array, o: Options) -> Outcome:
    """As `hop`, less a penalty on what a foot bears above some body weights."""
    reward, fallen, info = hop(physics, before, actions, o)
    load = physics.derived["touch"] / physics.weight
    impact = np.maximum(load - o.impact_threshold, 0.0).sum(axis=1)
    info["reward_impact"] = -o.impact_coefficient * impact
    return Outcome(reward + info["reward_impact"], fallen, info)


_COMMON = {
    "ctrl_cost_weight": CONTROL_COST,
    "control_unit": "torque",
    "exclude_current_positions_from_observation": False,
}
_UPRIGHT = {**_COMMON, "timestep": 0.01, "reset_noise_scale": 5e-3, "healthy_reward": 1.0}

TASKS = {
    "trellis/PaperSwimmer-v0": Task(
        "swimmer.xml",
        frame_skip=4,
        max_episode_steps=1000,
        start=start,
        observe=observe,
        outcome=swim,
        options={**_COMMON, "timestep": 0.01, "reset_noise_scale": 0.1},
        derived={
            "links": lambda batch: np.broadcast_to(
                links(batch.model), (batch.nsim, batch.model.nbody - 1)
            )
        },
        load=load,
    ),
    "trellis/PaperHopper-v0": Task(
        "hopper.xml",
        frame_skip=2,
        max_episode_steps=1000,
        start=start,
        observe=observe,
        outcome=hop,
        options={
            **_UPRIGHT,
            "healthy_z_range": (0.7, np.inf),
            "healthy_angle_range": (-0.2, 0.2),
        },
        load=load,
    ),
    "trellis/PaperWalker-v0": Task(
        "walker2d_v5.xml",
        frame_skip=2,
        max_episode_steps=1000,
        start=start,
        observe=observe,
        outcome=walk,
        options={
            **_UPRIGHT,
            "healthy_z_range": (0.8, 2.0),
            "healthy_angle_range": (-1.0, 1.0),
            "impact_coefficient": 0.25,
            "impact_threshold": 1.5,
        },
        derived={"touch": lambda batch: batch.bind("sensordata")},
        load=load_walker,
    ),
}
