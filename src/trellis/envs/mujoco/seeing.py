"""Implements a robot that sees: an arm that must reach a goal which only its camera shows.

A planar arm with two joints reaches for a red disc. Observations are a picture of 64×64 pixels from
the arm's camera, above its base, and the angles and velocities of its joints. The position of the
disc is in the picture alone. Actions are the speeds of the joints. The reward of a step is

    exp(−d / 5 cm)

with d the distance between the fingertip and the disc, so an arm that cannot see gains little. The
option `senses` gives the same task with other observations, for comparison.
"""

import atexit
import functools
import os
import sys
import weakref
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Restorability, Snapshot, Step
from trellis.envs.classic.streams import first_uniform

if sys.platform == "linux" and "mujoco" not in sys.modules and "DISPLAY" not in os.environ:
    os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo reads it once, when it is imported.
# Pictures of this size take longer to distribute over threads than to draw.
os.environ.setdefault("LP_NUM_THREADS", "0")

import mujoco
from mujoco.batch import Batch

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

SEEING_REACHER = "trellis/SeeingReacher-v0"
"""Id of the environment."""
SIDE = 64
"""Height and width of the camera's picture in pixels."""
SUBSTEPS = 10
"""Physics steps per step, of 10 ms each."""
SPEED = 4.0
"""Largest speed of a joint in radians per second."""
WIDTH = 0.05
"""Distance in metres over which the reward falls by a factor of e."""
REACH = 0.05, 0.19
"""Smallest and largest distance of the goal from the arm's base, in metres."""
Senses = Literal["both", "joints", "state"]
"""What an observation has: camera and joints, joints alone, or joints and the goal's position."""
CAMERA, JOINTS = "camera", "joints"

# A software renderer needs 0.3 ms for a picture of this model. A floor alone would take 1.6 ms, and
# rounder links as much again.
MODEL = """
<mujoco model="seeing reacher">
  <option timestep="0.01" integrator="implicitfast" gravity="0 0 0"/>
  <visual>
    <global offwidth="480" offheight="480"/>
    <quality shadowsize="0" offsamples="0" numslices="10" numstacks="4" numquads="1"/>
    <headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/>
  </visual>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <camera name="eye" pos="0 0 0.55" fovy="45"/>
    <body name="goal" mocap="true" pos="0.1 0 0.01">
      <geom type="cylinder" size="0.02 0.005" rgba="1 0.1 0.1 1"/>
    </body>
    <body pos="0 0 0.02">
      <joint name="shoulder" axis="0 0 1" damping="0.02" armature="0.004"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.01" rgba="0.7 0.7 0.7 1"/>
      <body pos="0.1 0 0">
        <joint name="elbow" axis="0 0 1" damping="0.02" armature="0.004"/>
        <geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.01" rgba="0.2 0.4 1 1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <velocity joint="shoulder" kv="0.08" ctrlrange="-4 4" ctrllimited="true"/>
    <velocity joint="elbow" kv="0.08" ctrlrange="-4 4" ctrllimited="true"/>
  </actuator>
</mujoco>
"""
LINKS = 0.1, 0.1
"""Lengths of the links in metres."""


class SeeingReacher(BatchEnv):
    """Batch of arms with a camera.

    Args:
        num_envs: Size of the batch.
        nthread: Number of threads for physics; 0 for all cores.
        senses: What observations have.
        max_episode_steps: Time limit; None for no limit.
    """

    restorability = Restorability.SERIALIZABLE
    seconds_per_step = 0.01 * SUBSTEPS

    def __init__(
        self,
        num_envs: int,
        *,
        nthread: int = 0,
        senses: Senses = "both",
        max_episode_steps: int | None = 25,
    ):
        if senses not in ("both", "joints", "state"):
            raise ValueError(f"senses must be both, joints or state, got {senses!r}")
        self.senses: Senses = senses
        self.model = mujoco.MjModel.from_xml_string(MODEL)
        self._batch = Batch(self.model, num_envs, nthread)
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._state, self._ctrl = self._batch.state, self._batch.bind("ctrl")
        self._initial = self._state[0].copy()
        first = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_TIME.value)
        self._qpos, self._qvel = slice(first, first + 2), slice(first + 2, first + 4)
        self._goal = np.zeros((num_envs, 2))
        self._camera = np.zeros((num_envs, SIDE, SIDE, 3), np.uint8)
        self._data = mujoco.MjData(self.model)
        self._renderers: dict[int, Any] = {}
        weakref.finalize(self, _close, self._renderers).atexit = False
        vector = spaces.Box(-np.inf, np.inf, (10 if senses == "state" else 6,), np.float32)
        space: spaces.Space[Any] = vector
        if senses == "both":
            pictures = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
            space = spaces.Dict({CAMERA: pictures, JOINTS: vector})
        actions = spaces.Box(-1.0, 1.0, (2,), np.float32)
        limit = max_episode_steps
        super().__init__(SEEING_REACHER, num_envs, space, actions, max_episode_steps=limit)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Any:
        shoulder, elbow, angle, area = first_uniform(seeds, 4, 0.0, 1.0).T
        near, far = np.square(REACH)
        radius = np.sqrt(near + (far - near) * area)  # uniform over the ring
        angle = 2 * np.pi * angle
        self._goal[ids] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        self._state[ids] = self._initial
        joints = np.stack([np.pi * (2 * shoulder - 1), 2.5 * (2 * elbow - 1)], axis=1)
        self._state[ids, self._qpos] = joints
        self._look(ids)
        return self._observe(ids)

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        ids = np.flatnonzero(active)
        self._ctrl[ids] = SPEED * actions[ids]
        if ids.size:
            self._batch.step(ids, nstep=SUBSTEPS)
            self._look(ids)
        distance = np.linalg.norm(self._tip(np.arange(self.num_envs)) - self._goal, axis=1)
        self.info = {"distance": distance}
        reward = np.where(active, np.exp(-distance / WIDTH), 0.0)
        flags = np.zeros(self.num_envs, bool)
        return Step(self._observe(np.arange(self.num_envs)), reward, flags, flags.copy())

    def _tip(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the positions of the fingertips."""
        shoulder, elbow = self._state[ids, self._qpos].T
        both = shoulder + elbow
        x = LINKS[0] * np.cos(shoulder) + LINKS[1] * np.cos(both)
        y = LINKS[0] * np.sin(shoulder) + LINKS[1] * np.sin(both)
        return np.stack([x, y], axis=1)

    def _observe(self, ids: NDArray[np.int64]) -> Any:
        angles, speeds = self._state[ids, self._qpos], self._state[ids, self._qvel]
        parts = [np.cos(angles), np.sin(angles), speeds]
        if self.senses == "state":
            parts += [self._goal[ids], self._tip(ids) - self._goal[ids]]
        joints = np.concatenate(parts, axis=1).astype(np.float32)
        return {CAMERA: self._camera[ids], JOINTS: joints} if self.senses == "both" else joints

    def _look(self, ids: NDArray[np.int64]) -> None:
        """Take new pictures of the environments `ids`."""
        if self.senses == "both":
            for index in ids.tolist():
                self._draw(index, SIDE, self._camera[index])

    def _draw(self, index: int, side: int, out: NDArray[np.uint8]) -> None:
        renderer = self._renderers.get(side)
        if renderer is None:
            # The exception for a missing display or driver depends on the platform.
            try:
                renderer = self._renderers[side] = mujoco.Renderer(self.model, side, side)
                _DRAWING.add(self)
                _close_at_exit()
            except Exception as failure:
                raise RuntimeError(
                    f"{SEEING_REACHER} draws its camera's pictures, but no OpenGL context is"
                    " available. Install libEGL (apt install libegl1 libgl1-mesa-dri) and set"
                    f" MUJOCO_GL=egl before Python starts. MuJoCo's error: {failure}"
                ) from failure
        kind = mujoco.mjtState.mjSTATE_INTEGRATION.value
        mujoco.mj_setState(self.model, self._data, self._state[index], kind)
        self._data.mocap_pos[0, :2] = self._goal[index]
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_camlight(self.model, self._data)
        renderer.update_scene(self._data, "eye")
        renderer.render(out=out)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        return {"state": self._state[ids], "goal": self._goal[ids], CAMERA: self._camera[ids]}

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Any:
        self._state[ids], self._goal[ids] = snapshot["state"], snapshot["goal"]
        self._camera[ids] = snapshot[CAMERA]
        return self._observe(ids)

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of environment `index` from its camera, (480, 480, 3)."""
        picture = np.zeros((480, 480, 3), np.uint8)
        self._draw(index, 480, picture)
        return picture

    def close(self) -> None:
        """Close the renderers."""
        _close(self._renderers)


_DRAWING: weakref.WeakSet[SeeingReacher] = weakref.WeakSet()
"""Batches that have renderers."""


@functools.cache
def _close_at_exit() -> None:
    """Let all renderers be closed when Python exits.

    Exit handlers run in reverse order, and MuJoCo registers OpenGL's with the first renderer. So
    this one is registered after it.
    """
    atexit.register(lambda: [batch.close() for batch in list(_DRAWING)])


def _close(renderers: dict[int, Any]) -> None:
    for renderer in renderers.values():
        renderer.close()
    renderers.clear()
