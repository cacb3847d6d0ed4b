"""Runs any MuJoCo task as a batch: physics in `mujoco.batch.Batch`, the rest in NumPy.

A simulation is one row of `Batch.state`, which is MuJoCo's full integration state including its
warm start. So `snapshot` and `restore` copy rows. A batch can be divided into two lanes, which are
batches of their own for two threads.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Restorability, Snapshot, Step
from trellis.envs.errors import EnvError, EnvRaisedError
from trellis.envs.mujoco.contact_batch import ContactBatch
from trellis.envs.mujoco.segment import Segment
from trellis.envs.mujoco.task import Batch, MujocoTask, Physics, SimulationError, Values, model_path

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

LANES = 2
"""Number of lanes. It does not depend on the number of cores, because samples depend on it."""
LEAST_ENVS = 16
"""Number of environments from which on a batch is divided."""


class MujocoBatch(BatchEnv):
    """Batch of simulations of one MuJoCo task.

    Args:
        env_id: Id of the environment.
        task: The task.
        num_envs: Size of the batch.
        nthread: Number of threads; 0 for all cores. It does not change the results.
        model: Model of another batch of the same task, to share; by default it is loaded.
        first: Index of the first environment in the whole batch, for error messages of lanes.
        **options: Options of the task, and `xml_file`, `frame_skip` and `max_episode_steps`,
            which every task has.
    """

    restorability = Restorability.SERIALIZABLE

    def __init__(
        self,
        env_id: str,
        task: MujocoTask,
        num_envs: int,
        *,
        nthread: int = 0,
        model: mujoco.MjModel | None = None,
        first: int = 0,
        **options: Any,
    ):
        self.task, self._given, self._first = task, options, first
        self.options = task.with_options(env_id, options)
        self.model = model or task.load(str(model_path(self.options.xml_file)), self.options)
        if self.model.ntree == 1:
            # One tree is one island: the search for islands costs time and changes no bit.
            self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND.value
        simulations = ContactBatch if task.contact_forces else Batch
        self._batch = simulations(self.model, num_envs, nthread)
        self.lane_threads = self._batch.nthread
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._state = self._batch.state
        self._initial = self._state[0].copy()
        self._ctrl = self._batch.bind("ctrl")
        first = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_TIME.value)
        split, last = first + self.model.nq, first + self.model.nq + self.model.nv
        self._coordinates = slice(first, last)
        self.physics = Physics(
            self._state[:, first:last],
            self._state[:, first:split],
            self._state[:, split:last],
            {name: bind(self._batch) for name, bind in task.derived.items()},
            self.model.opt.timestep * self.options.frame_skip,
            self.model.qpos0.copy(),
            self.model.actuator_gear[:, 0].copy(),
            float(-self.model.opt.gravity[2] * self.model.body_mass.sum()),
            np.zeros((num_envs, 2)),
        )
        self._observation = task.observe(self.physics, self.options)
        self._never = np.zeros(num_envs, bool)
        self._never.flags.writeable = False
        self._renderer: mujoco.Renderer | None = None
        self.seconds_per_step = self.physics.seconds
        limited = self.model.actuator_ctrllimited.astype(bool)
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        low, high = np.where(limited, low, -np.inf), np.where(limited, high, np.inf)
        super().__init__(
            env_id,
            num_envs,
            spaces.Box(-np.inf, np.inf, self._observation.shape[1:], np.float64),
            spaces.Box(low, high, dtype=np.float32),
            max_episode_steps=self.options.max_episode_steps,
        )

    @functools.cached_property
    def divided(self) -> list[tuple[slice, "MujocoBatch"]]:
        """Lanes of the batch: their environments, and a batch of them with states of its own."""
        if self.num_envs < LEAST_ENVS:
            return [(slice(0, self.num_envs), self)]
        edges = [self.num_envs * index // LANES for index in range(LANES + 1)]
        nthread = max(self.lane_threads // LANES, 1)

        def lane(start: int, stop: int) -> MujocoBatch:
            shared = {"nthread": nthread, "model": self.model, "first": start, **self._given}
            return MujocoBatch(self.env_id, self.task, stop - start, **shared)

        return [(slice(*pair), lane(*pair)) for pair in itertools.pairwise(edges)]

    def error(
        self, kind: type[EnvError], reason: str, index: int = 0, step: int | None = None
    ) -> EnvError:
        """Return an error about environment `index`, numbered as in the whole batch."""
        found = super().error(kind, reason, index, step)
        if not self._first:
            return found
        where = {"env_id": self.env_id, "step": found.step, "seed": found.seed}
        return kind(reason, index=self._first + index, **where)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Values:
        coordinates = np.concatenate(self.task.start(seeds, self.model, self.options), axis=1)
        self._state[ids] = self._initial
        self._state[ids, self._coordinates] = coordinates
        if self.task.forward_at_reset and ids.size:
            self._run(self._batch.forward, np.unique(ids))  # MuJoCo requires ascending order
        rows = self.physics.rows(coordinates, ids)
        observation = self.task.observe(rows, self.options)
        if self.task.position is not None:
            self.physics.position[ids] = self.task.position(rows, self.model, self.options)
        self._observation[ids] = observation
        return observation

    def _step(self, actions: Values, active: NDArray[np.bool_]) -> Step:
        everyone = active is self._all_active or bool(active.all())
        position = self.task.position
        before = (self.physics.qpos if position is None else self.physics.position).copy()
        ids = None if everyone else np.flatnonzero(active)
        rows = slice(None) if ids is None else ids
        if everyone:
            self._ctrl[...] = actions
        else:
            self._ctrl[rows] = actions[rows]
        self._run(self._batch.step, ids, nstep=self.options.frame_skip)
        if position is not None:
            moved = position(self.physics, self.model, self.options)
            self.physics.position[rows] = moved[rows]
        observation = self.task.observe(self.physics, self.options)
        reward, terminated, self.info = self.task.outcome(
            self.physics, before, actions, self.options
        )
        if not everyone:
            idle = ~active
            observation[idle] = self._observation[idle]
            reward = np.where(active, reward, 0.0)
            terminated = terminated & active
        np.copyto(self._observation, observation)
        return Step(observation, reward, terminated, self._never)

    def segment(self, steps: int) -> Segment | None:
        """Return steps whose rewards are computed together; None if the task does not allow it."""
        steps_differently = type(self)._step is not MujocoBatch._step
        if self.task.terminated is None or steps_differently:
            return None
        return Segment(self, steps)

    def advance(self, actions: Values) -> tuple[Values, NDArray[np.bool_]]:
        """Advance all environments of a `Segment`; return observations and terminations."""
        assert self.task.terminated is not None
        self._ctrl[...] = actions
        self._run(self._batch.step, None, nstep=self.options.frame_skip)
        self.elapsed += 1
        self._observation = observation = self.task.observe(self.physics, self.options)
        self.check_finite("observation", observation)
        return observation, self.task.terminated(self.physics, self.options)

    def truncated(self) -> NDArray[np.bool_]:
        """Return whether each environment has reached its time limit."""
        limit = self.max_episode_steps
        return self._never if limit is None else np.greater_equal(self.elapsed, limit)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        snapshot = {"state": self._state[ids], "observation": self._observation[ids]}
        if self.task.position is not None:
            snapshot["position"] = self.physics.position[ids]
        return snapshot

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Values:
        if not self._snapshot(ids[:0]).keys() <= snapshot.keys():
            raise ValueError(
                f"{self.env_id}: the snapshot has {', '.join(sorted(snapshot))}: it belongs to"
                " another task, or to another version of Trellis"
            )
        state, observation = snapshot["state"], snapshot["observation"]
        if state.shape[1:] != self._initial.shape:
            raise ValueError(
                f"{self.env_id}: the states of the snapshot have shape {state.shape[1:]}, but this"
                f" model has states of shape {self._initial.shape}: the snapshot belongs to another"
                " task or another model file"
            )
        self._state[ids] = state
        self._observation[ids] = observation
        if self.task.position is not None:
            self.physics.position[ids] = snapshot["position"]
        return np.array(observation)

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` for numbers above the limit at which MuJoCo resets a simulation."""
        if not np.all(np.abs(snapshot["state"]) <= mujoco.mjMAXVAL):
            raise self.impossible()

    def _run(self, call: Callable[..., None], ids: NDArray[np.int64] | None, **how: Any) -> None:
        try:
            call(ids, **how)
        except SimulationError as failure:
            raise self.error(EnvRaisedError, str(failure), int(failure.ids[0])) from failure

    def render(self, index: int = 0, width: int = 480, height: int = 480) -> NDArray[np.uint8]:
        """Return a picture of environment `index` from its model's tracking camera.

        Args:
            index: Index of the environment.
            width: Width of the picture in pixels.
            height: Height of the picture in pixels.

        Returns:
            An array of shape (height, width, 3).
        """
        renderer = self._renderer
        if renderer is None or (renderer.width, renderer.height) != (width, height):
            self.close()
            view = self.model.vis.global_
            view.offwidth, view.offheight = max(view.offwidth, width), max(view.offheight, height)
            # The exception for a missing display or driver depends on the platform.
            try:
                renderer = self._renderer = mujoco.Renderer(self.model, height, width)
            except Exception as failure:
                raise RuntimeError(
                    "no OpenGL context is available for rendering. Without a display, set"
                    " MUJOCO_GL=egl (needs libEGL) or MUJOCO_GL=osmesa (needs libOSMesa) before"
                    f" Python starts. MuJoCo's error: {failure}"
                ) from failure
        data = self._batch.get_data(index)
        mujoco.mj_forward(self.model, data)
        cameras = [self.model.camera(k).name for k in range(self.model.ncam)]
        renderer.update_scene(data, "track" if "track" in cameras else -1)
        return renderer.render()

    def close(self) -> None:
        """Close the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
