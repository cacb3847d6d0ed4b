"""Table of Gymnasium's eleven MuJoCo tasks, version 5.

The formulas, their order of operations and their defaults are Gymnasium's, and the tests compare
the results with Gymnasium's to 1e-9. The control cost is computed in the precision of the action,
as in Gymnasium.
"""

import functools

import numpy as np

from trellis.envs.mujoco.arms import (
    pusher_observation,
    pusher_outcome,
    pusher_start,
    reacher_observation,
    reacher_outcome,
    reacher_start,
)
from trellis.envs.mujoco.bodies import (
    HUMANOID_DERIVED,
    ant_observation,
    ant_outcome,
    bound,
    humanoid_observation,
    humanoid_outcome,
    main_body_position,
    mass_center,
    standup_outcome,
)
from trellis.envs.mujoco.pendulums import (
    double_pendulum_observation,
    double_pendulum_outcome,
    pendulum_outcome,
)
from trellis.envs.mujoco.runners import (
    clipped_coordinates,
    coordinates,
    never,
    runner_outcome,
    swimmer_outcome,
    walker_outcome,
    walker_terminated,
)
from trellis.envs.mujoco.starts import normal_start, uniform_start
from trellis.envs.mujoco.task import MujocoTask

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
    terminated=walker_terminated,
)
_HUMANOID = {
    "ctrl_cost_weight": 0.1,
    "reset_noise_scale": 1e-2,
    "exclude_current_positions_from_observation": True,
    "include_cinert_in_observation": True,
    "include_cvel_in_observation": True,
    "include_qfrc_actuator_in_observation": True,
    "include_cfrc_ext_in_observation": True,
}
_humanoid = functools.partial(
    MujocoTask,
    frame_skip=5,
    start=uniform_start,
    observe=humanoid_observation,
    contact_forces=True,
    forward_at_reset=True,
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
    "Pusher-v5": MujocoTask(
        "pusher_v5.xml",
        frame_skip=5,
        max_episode_steps=100,
        start=pusher_start,
        observe=pusher_observation,
        outcome=pusher_outcome,
        options={
            "reward_near_weight": 0.5,
            "reward_dist_weight": 1.0,
            "reward_control_weight": 0.1,
        },
        derived={
            "tips_arm": lambda batch: batch.body("tips_arm").xpos,
            "object": lambda batch: batch.body("object").xpos,
            "goal": lambda batch: batch.body("goal").xpos,
        },
        forward_at_reset=True,
    ),
    "Swimmer-v5": MujocoTask(
        "swimmer.xml",
        frame_skip=4,
        start=uniform_start,
        observe=functools.partial(coordinates, hidden=2),
        outcome=swimmer_outcome,
        terminated=never,
        options={**_RUNNER, "ctrl_cost_weight": 1e-4},
    ),
    "HalfCheetah-v5": MujocoTask(
        "half_cheetah.xml",
        frame_skip=5,
        start=normal_start,
        observe=coordinates,
        outcome=runner_outcome,
        terminated=never,
        options={**_RUNNER, "ctrl_cost_weight": 0.1},
    ),
    "Hopper-v5": _walker(
        "hopper.xml",
        options={**_WALKER, **HOPPER_HEALTH, "healthy_state_range": (-100.0, 100.0)},
    ),
    "Walker2d-v5": _walker("walker2d_v5.xml", options={**_WALKER, **WALKER_HEALTH}),
    "Ant-v5": MujocoTask(
        "ant.xml",
        frame_skip=5,
        start=normal_start,
        observe=ant_observation,
        outcome=ant_outcome,
        position=main_body_position,
        contact_forces=True,
        options={
            **_RUNNER,
            "ctrl_cost_weight": 0.5,
            "contact_cost_weight": 5e-4,
            "healthy_reward": 1.0,
            "main_body": 1,
            "terminate_when_unhealthy": True,
            "healthy_z_range": (0.2, 1.0),
            "contact_force_range": (-1.0, 1.0),
            "include_cfrc_ext_in_observation": True,
        },
        derived=bound("xpos", "cfrc_ext"),
        forward_at_reset=True,
    ),
    "Humanoid-v5": _humanoid(
        "humanoid.xml",
        outcome=humanoid_outcome,
        position=mass_center,
        options={
            **_HUMANOID,
            "forward_reward_weight": 1.25,
            "contact_cost_weight": 5e-7,
            "contact_cost_range": (-np.inf, 10.0),
            "healthy_reward": 5.0,
            "terminate_when_unhealthy": True,
            "healthy_z_range": (1.0, 2.0),
        },
        derived=bound("xipos", *HUMANOID_DERIVED),
    ),
    "HumanoidStandup-v5": _humanoid(
        "humanoidstandup.xml",
        outcome=standup_outcome,
        options={
            **_HUMANOID,
            "uph_cost_weight": 1.0,
            "impact_cost_weight": 0.5e-6,
            "impact_cost_range": (-np.inf, 10.0),
        },
        derived=bound(*HUMANOID_DERIVED),
    ),
}
