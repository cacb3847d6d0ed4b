"""Tests of the paper's tasks: rewards, terminations and plausible physics."""

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch

import trellis.envs
from trellis.envs.mujoco import paper
from trellis.envs.mujoco.batch import MujocoBatch
from trellis.envs.mujoco.task import ASSETS

SWIMMER, HOPPER, WALKER = paper.TASKS
every_task = pytest.mark.parametrize("env_id", paper.TASKS)
GEAR = {SWIMMER: 150.0, HOPPER: 200.0, WALKER: 100.0}


def started(env_id: str, num_envs: int = 4, **options) -> MujocoBatch:
    env = trellis.envs.make(env_id, num_envs, **options)
    env.reset(np.arange(num_envs), np.arange(num_envs))
    return env


@pytest.mark.parametrize(("env_id", "size"), [(SWIMMER, 10), (HOPPER, 12), (WALKER, 18)])
def test_state_is_all_generalized_positions_and_velocities(env_id, size):
    env = started(env_id)
    assert env.observation_space.shape == (size,)
    observation = env.step(np.zeros((4, *env.action_space.shape))).observation
    data = env._batch.get_data(2)
    np.testing.assert_array_equal(observation[2], np.concatenate([data.qpos, data.qvel]))
    hidden = trellis.envs.make(env_id, 1, exclude_current_positions_from_observation=True)
    assert hidden.observation_space.shape == (size - 1,)


@every_task
def test_bodies_equal_gymnasiums(env_id):
    ours = trellis.envs.make(env_id, 1).model
    theirs = mujoco.MjModel.from_xml_path(str(ASSETS / paper.TASKS[env_id].xml_file))
    for name in ("body_mass", "body_inertia", "body_pos", "jnt_range", "dof_damping", "qpos0"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    np.testing.assert_array_equal(ours.actuator_gear[:, 0], GEAR[env_id])
    # Except the floor, whose size affects only pictures: a plane is infinite in MuJoCo.
    np.testing.assert_array_equal(ours.geom_size[1:], theirs.geom_size[1:])


@pytest.mark.parametrize("unit", ["torque", "normalized"])
@pytest.mark.parametrize("env_id", [HOPPER, WALKER])
def test_reward_is_velocity_minus_effort_plus_one(env_id, unit):
    env = started(env_id, control_unit=unit)
    before = env.snapshot(np.arange(4))["observation"]
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (4, *env.action_space.shape))
    step = env.step(actions)
    u = np.clip(actions, -1, 1) * (GEAR[env_id] if unit == "torque" else 1.0)
    velocity = (step.observation[:, 0] - before[:, 0]) / 0.02
    impact = env.info.get("reward_impact", 0.0)
    assert not step.terminated.any()
    np.testing.assert_allclose(
        step.reward, velocity - 1e-5 * (u**2).sum(axis=1) + 1 + impact, rtol=0, atol=1e-12
    )


def test_swimmers_velocity_is_that_of_its_centre_of_mass():
    env, rng = started(SWIMMER), np.random.default_rng(0)

    def centre() -> np.ndarray:
        out = []
        for row in range(4):
            data = env._batch.get_data(row)
            mujoco.mj_forward(env.model, data)
            out.append(data.subtree_com[1, 0])
        return np.array(out)

    start, paid = centre(), np.zeros(4)
    for action in np.repeat(rng.uniform(-1, 1, (8, 4, 2)), 10, axis=0):
        step = env.step(action)
        cost = 1e-5 * ((150 * action) ** 2).sum(axis=1)
        paid += (step.reward + cost) * env.seconds_per_step
    np.testing.assert_allclose(paid, centre() - start, atol=1e-12)
    assert np.abs(paid).max() > 0.05


@pytest.mark.parametrize("env_id", [HOPPER, WALKER])
def test_falling_ends_the_episode_and_the_bonus(env_id):
    env = started(env_id)
    physics = env.physics.rows(env.physics.coordinates[:4].copy(), np.arange(4))
    limit = env.options.healthy_angle_range[1]
    physics.qpos[0, 1] = env.options.healthy_z_range[0] - 0.01
    physics.qpos[1, 2] = limit + 0.01
    physics.qpos[2, 2] = -limit - 0.01
    outcome = env.task.outcome(
        physics, physics.qpos.copy(), np.zeros((4, env.model.nu)), env.options
    )
    np.testing.assert_array_equal(outcome.terminated, [True, True, True, False])
    np.testing.assert_array_equal(outcome.reward, [0, 0, 0, 1])


def stand(env: MujocoBatch, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Hold the first pose; return penalties and forces under the feet, (steps, envs)."""
    touch = env.physics.derived["touch"]
    penalty, force = [], []
    for _ in range(steps):
        qpos, qvel = env.physics.qpos[:, 3:], env.physics.qvel[:, 3:]
        env.step(-0.5 * qpos - 0.03 * qvel)
        penalty.append(-env.info["reward_impact"])
        force.append(touch.sum(axis=1))
    return np.array(penalty), np.array(force)


def test_touch_sensors_weigh_the_walker():
    env = started(WALKER)
    _, force = stand(env, 40)
    weight = 9.81 * env.model.body_mass.sum()
    assert force[20:].mean() == pytest.approx(weight, rel=0.05)


def test_standing_has_no_penalty_and_a_hard_landing_has_one():
    env = started(WALKER)
    penalty, _ = stand(env, 60)
    assert penalty[15:].max() == 0
    rows = {name: values.copy() for name, values in env.snapshot(np.arange(4)).items()}
    rows["state"][:, 2] += 0.1
    env.restore(np.arange(4), rows)
    penalty, _ = stand(env, 50)
    assert penalty.max() > 0.5  # a drop from a small height
    assert 0.005 < penalty.mean() < 0.1  # about once per second, which is 50 steps
    mild = started(WALKER, impact_coefficient=0.0)
    mild.restore(np.arange(4), rows)
    assert not stand(mild, 60)[0].any()


def actions_for(kind: str, steps: int, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "random":
        return rng.uniform(-1, 1, (steps, *shape))
    return np.repeat(np.sign(rng.normal(size=(steps // 10, *shape))), 10, axis=0)


@every_task
@pytest.mark.parametrize("kind", ["random", "bang-bang"])
def test_the_physics_stays_bounded(env_id, kind):
    """A thousand steps give no warning, and speeds and depths like Gymnasium's integrator.

    Its walker reaches 108 rad/s and 9 cm under bang-bang control.
    """
    env = started(env_id, 16)
    batch = env._batch
    height, axes = batch.bind("geom_xpos"), batch.bind("geom_xmat")
    feet = [k for k in range(env.model.ngeom) if "foot" in env.model.geom(k).name]
    radius, half = env.model.geom_size[feet, :2].T
    deepest = 0.0
    for action in actions_for(kind, 1000, (16, *env.action_space.shape)):
        step = env.step(action)
        env.reset(np.flatnonzero(step.terminated), np.flatnonzero(step.terminated))
        upright = np.abs(axes.reshape(16, -1, 3, 3)[:, feet, 2, 2])
        deepest = min(deepest, (height[:, feet, 2] - half * upright - radius).min(initial=0.0))
    assert not batch.warning[..., 0].any()
    assert np.abs(env.physics.qvel).max() < 150
    assert deepest > -0.12


@every_task
def test_short_futures_converge_to_gymnasiums_integrator(env_id):
    """Half the time step halves the distance from RK4, which is first-order convergence."""
    steps, shape = 2, (16, trellis.envs.make(env_id, 1).model.nu)
    actions = actions_for("random", steps, shape)
    task = paper.TASKS[env_id]
    seconds = task.options["timestep"] * task.frame_skip

    def end(integrator: int, timestep: float) -> np.ndarray:
        model = trellis.envs.make(env_id, 1, timestep=timestep).model
        model.opt.integrator = integrator
        batch = Batch(model, 16, 1)
        batch.reset()
        for action in actions:
            batch.bind("ctrl")[:] = action
            batch.step(nstep=round(seconds / timestep))
        return batch.bind("qpos").copy()

    step = task.options["timestep"]
    exact = end(mujoco.mjtIntegrator.mjINT_RK4, step / 8)
    implicit = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    far, near = (
        np.median(np.abs(end(implicit, size) - exact).max(axis=1)) for size in (step, step / 4)
    )
    assert far < 0.15
    assert near < 0.5 * far


@every_task
@pytest.mark.parametrize("kind", ["random", "bang-bang"])
def test_the_physics_is_the_same_without_islands(env_id, kind):
    """States are equal bit for bit while standing, falling and lying on the floor."""
    model = trellis.envs.make(env_id, 1).model
    island = mujoco.mjtDisableBit.mjDSBL_ISLAND.value

    def states(flags: int) -> tuple[np.ndarray, np.ndarray]:
        model.opt.disableflags = flags
        batch = Batch(model, 16, 2)
        batch.reset()
        for action in actions_for(kind, 300, (16, model.nu)):
            batch.bind("ctrl")[:] = action
            batch.step(nstep=2)
        return batch.state.copy(), batch.bind("sensordata").copy()

    ours = model.opt.disableflags
    assert ours & island
    for without, with_ in zip(states(ours), states(ours & ~island), strict=True):
        np.testing.assert_array_equal(without, with_)


def test_an_unknown_control_unit_is_an_error():
    with pytest.raises(ValueError, match="control_unit must be one of"):
        trellis.envs.make(HOPPER, 1, control_unit="newton")


@pytest.mark.parametrize("env_id", [HOPPER, WALKER])
def test_whole_body_velocity_is_that_of_the_centre_of_mass(env_id):
    env = started(env_id, velocity="whole-body")
    torso = started(env_id)
    data = mujoco.MjData(env.model)

    def centres(observation):
        for row in observation:
            data.qpos[:] = row[: env.model.nq]
            mujoco.mj_kinematics(env.model, data)
            mujoco.mj_comPos(env.model, data)
            yield data.subtree_com[0, 0]

    before = list(centres(env.snapshot(np.arange(4))["observation"]))
    actions = np.random.default_rng(0).uniform(-1, 1, (4, *env.action_space.shape))
    step, other = env.step(actions), torso.step(actions)
    velocity = (np.array(list(centres(step.observation))) - before) / 0.02
    np.testing.assert_allclose(env.info["x_velocity"], velocity, atol=1e-10)
    np.testing.assert_array_equal(step.observation, other.observation)
    difference = env.info["x_velocity"] - torso.info["x_velocity"]
    assert np.abs(difference).min() > 1e-3
    np.testing.assert_allclose(step.reward - other.reward, difference, atol=1e-10)


@every_task
def test_torques_as_actions_are_the_same_physics(env_id):
    env, torques = started(env_id), started(env_id, action_unit="torque")
    assert not np.isfinite(torques.action_space.high).any()
    # Some exceed the largest torque.
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (4, *env.action_space.shape))
    step, other = env.step(actions), torques.step(actions * GEAR[env_id])
    np.testing.assert_allclose(other.observation, step.observation, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.reward, step.reward, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="control_unit must be torque"):
        trellis.envs.make(env_id, 1, action_unit="torque", control_unit="normalized")


def test_velocities_can_be_clipped_in_the_observation():
    env, clipped = started(HOPPER), started(HOPPER, velocity_limit=0.5)
    for _ in range(3):
        actions = np.ones((4, *env.action_space.shape))
        step, other = env.step(actions), clipped.step(actions)
    np.testing.assert_array_equal(other.observation[:, :6], step.observation[:, :6])
    np.testing.assert_array_equal(other.observation[:, 6:], step.observation[:, 6:].clip(-0.5, 0.5))
    assert np.abs(step.observation[:, 6:]).max() > 0.5
    np.testing.assert_array_equal(other.reward, step.reward)
