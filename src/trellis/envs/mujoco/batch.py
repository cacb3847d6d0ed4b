"""MuJoCo tasks on `mujoco.batch.Batch`: physics on all cores, everything else vectorized.

A `Task` is data: a model, options, and three functions over all rows at once (where an episode
starts, what is observed, what a step was worth). `MujocoBatch` runs any of them. A simulation is
one row of `Batch.state`, MuJoCo's full integration state with its warm start, so a snapshot is a
copy of rows and so is putting it back. The tasks themselves are tables: `mujoco_v5.TASKS`,
`paper.TASKS`.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, EnvRaisedError, Restorability, Rows, Step

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

try:
    import mujoco
    from mujoco.batch import Batch, SimulationError
except ImportError as error:
    raise ImportError(
        "MuJoCo's environments need mujoco 3.17 or newer: pip install 'trellis-rl[mujoco]'"
    ) from error

Array = NDArray[Any]
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


class Physics(NamedTuple):
    """What a task may look at: live rows of the simulations, or copies of some of them."""

    coordinates: Array
    """qpos and qvel side by side, as they lie in the state."""
    qpos: Array
    qvel: Array
    derived: Mapping[str, Array]
    """What the task asked for besides. As after mj_step: of the state before the last substep."""
    seconds: float
    """How long a step takes."""
    initial_qpos: Array
    """The model's own, before noise."""
    gear: Array
    """Torque of each actuator at control 1."""
    weight: float
    """Of the whole body, in newtons."""

    def rows(self, coordinates: Array, ids: NDArray[np.int64]) -> "Physics":
        """Of the rows `ids` alone, whose coordinates are these."""
        split = self.qpos.shape[1]
        return self._replace(
            coordinates=coordinates,
            qpos=coordinates[:, :split],
            qvel=coordinates[:, split:],
            derived={name: values[ids] for name, values in self.derived.items()},
        )


class Outcome(NamedTuple):
    """What a step was worth, a row per environment."""

    reward: Array
    terminated: NDArray[np.bool_]
    info: dict[str, Array]


# Attributes are the task's options; their names are Gymnasium's wherever it has them.
Options = SimpleNamespace


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment in MuJoCo, as data."""

    xml_file: str
    """In Gymnasium's package, or a path."""
    frame_skip: int
    """Physics steps for each step of the environment."""
    max_episode_steps: int
    start: Callable[[NDArray[np.int64], "mujoco.MjModel", Options], tuple[Array, Array]]
    """(seeds, model, options) -> qpos and qvel, a row per seed."""
    observe: Callable[[Physics, Options], Array]
    """(physics, options) -> observations, in arrays of their own."""
    outcome: Callable[[Physics, Array, Array, Options], Outcome]
    """(physics, qpos before the step, actions, options) -> Outcome."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Names and defaults of what the constructor takes."""
    derived: Mapping[str, Callable[["Batch"], Array]] = dataclasses.field(default_factory=dict)
    """Live arrays of the batch that the functions need besides qpos and qvel."""
    forward_at_reset: bool = False
    """Whether a first observation needs derived fields. The state itself is the same without:
    mj_forward leaves no trace in it, not even a warm start."""
    load: Callable[[str, Options], "mujoco.MjModel"] = lambda path, _: mujoco.MjModel.from_xml_path(
        path
    )


class MujocoBatch(BatchEnv):
    """`num_envs` simulations of one task, on `nthread` threads (0: all cores).

    Options are the task's own, with `xml_file`, `frame_skip` and `max_episode_steps`, which every
    task has. Thread counts change the speed and not one bit of the results.
    """

    restorability = Restorability.SERIALIZABLE

    def __init__(self, env_id: str, task: Task, num_envs: int, *, nthread: int = 0, **options: Any):
        self.task = task
        self.options = _options(env_id, task, options)
        self.model = task.load(str(_model_path(self.options.xml_file)), self.options)
        if self.model.ntree == 1:
            # One tree is one island: to look for more costs time and changes not one bit.
            self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND.value
        self._batch = Batch(self.model, num_envs, nthread)
        self._batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._state = self._batch.state
        self._initial = self._state[0].copy()
        self._ctrl = self._batch.bind("ctrl")
        first = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_TIME.value)
        split, last = first + self.model.nq, first + self.model.nq + self.model.nv
        self._coordinates = slice(first, last)
        self._physics = Physics(
            self._state[:, first:last],
            self._state[:, first:split],
            self._state[:, split:last],
            {name: bind(self._batch) for name, bind in task.derived.items()},
            self.model.opt.timestep * self.options.frame_skip,
            self.model.qpos0.copy(),
            self.model.actuator_gear[:, 0].copy(),
            float(-self.model.opt.gravity[2] * self.model.body_mass.sum()),
        )
        self._observation = task.observe(self._physics, self.options)
        self._renderer: mujoco.Renderer | None = None
        low, high = self.model.actuator_ctrlrange.astype(np.float32).T
        super().__init__(
            env_id,
            num_envs,
            spaces.Box(-np.inf, np.inf, self._observation.shape[1:], np.float64),
            spaces.Box(low, high, dtype=np.float32),
            max_episode_steps=self.options.max_episode_steps,
        )

    @property
    def seconds_per_step(self) -> float:
        """Simulated time that a step takes; a video plays in real time at one over this."""
        return self._physics.seconds

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Array:
        coordinates = np.concatenate(self.task.start(seeds, self.model, self.options), axis=1)
        state = np.repeat(self._initial[None], len(ids), axis=0)
        state[:, self._coordinates] = coordinates
        self._state[ids] = state
        if self.task.forward_at_reset and ids.size:
            self._run(self._batch.forward, _ascending(ids))
        physics = self._physics.rows(coordinates, ids)
        observation = self.task.observe(physics, self.options)
        self._observation[ids] = observation
        return observation

    def _step(self, actions: Array, active: NDArray[np.bool_]) -> Step:
        everyone = active is self._all_active or bool(active.all())
        before = self._physics.qpos.copy()
        if everyone:
            self._ctrl[:] = actions
            self._run(self._batch.step, None, nstep=self.options.frame_skip)
        else:
            ids = np.flatnonzero(active)
            self._ctrl[ids] = actions[ids]
            self._run(self._batch.step, ids, nstep=self.options.frame_skip)
        observation = self.task.observe(self._physics, self.options)
        reward, terminated, self.info = self.task.outcome(
            self._physics, before, actions, self.options
        )
        if not everyone:
            idle = ~active
            observation[idle] = self._observation[idle]
            reward = np.where(active, reward, 0.0)
            terminated = terminated & active
        np.copyto(self._observation, observation)
        return Step(observation, reward, terminated, np.zeros(self.num_envs, bool))

    def _snapshot(self, ids: NDArray[np.int64]) -> Rows:
        return {"state": self._state[ids], "observation": self._observation[ids]}

    def _restore(self, ids: NDArray[np.int64], rows: Rows) -> Array:
        if rows["state"].shape[1:] != self._initial.shape:
            raise ValueError(
                f"{self.env_id}: rows of a snapshot have {rows['state'].shape[1:]} numbers each,"
                f" this model's states {self._initial.shape}; was it taken from another task?"
            )
        self._state[ids] = rows["state"]
        self._observation[ids] = rows["observation"]
        return np.array(rows["observation"])

    def _run(self, call: Callable[..., None], ids: NDArray[np.int64] | None, **how: Any) -> None:
        try:
            call(ids, **how)
        except SimulationError as failure:
            raise self.error(EnvRaisedError, str(failure), failure.ids) from failure

    def render(self, index: int = 0, width: int = 480, height: int = 480) -> NDArray[np.uint8]:
        """A picture of one environment, (height, width, 3), from its model's tracking camera."""
        if self._renderer is None or (self._renderer.width, self._renderer.height) != (
            width,
            height,
        ):
            self._close_renderer()
            view = self.model.vis.global_
            view.offwidth, view.offheight = max(view.offwidth, width), max(view.offheight, height)
            self._renderer = _renderer(self.model, width, height)
        data = self._batch.get_data(index)
        mujoco.mj_forward(self.model, data)
        cameras = [self.model.camera(k).name for k in range(self.model.ncam)]
        self._renderer.update_scene(data, "track" if "track" in cameras else -1)
        return self._renderer.render()

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def close(self) -> None:
        """Lets go of the renderer; the rest goes with the object."""
        self._close_renderer()


def _ascending(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ids as `Batch` wants them; in most cases they are already."""
    return ids if ids.size < 2 or (ids[1:] > ids[:-1]).all() else np.unique(ids)


def _options(env_id: str, task: Task, given: Mapping[str, Any]) -> Options:
    """The task's defaults with what was given; unknown names are refused with a suggestion."""
    known = {
        "xml_file": task.xml_file,
        "frame_skip": task.frame_skip,
        "max_episode_steps": task.max_episode_steps,
        **task.options,
    }
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise TypeError(
                f"{env_id} has no option {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else "")
                + f" It takes {', '.join(sorted(known))}."
            )
    return Options(**{**known, **given})


def _model_path(xml_file: str) -> Path:
    path = Path(xml_file).expanduser()
    if not path.is_absolute() and not xml_file.startswith("."):
        path = ASSETS / path
    if not path.exists():
        raise FileNotFoundError(f"there is no MuJoCo model at {path}")
    return path


def _renderer(model: "mujoco.MjModel", width: int, height: int) -> "mujoco.Renderer":
    # What a missing display or driver raises depends on the platform: any of it means the same.
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as failure:
        raise RuntimeError(
            "there is no OpenGL context to draw with. Without a display, set MUJOCO_GL=egl (needs"
            " libEGL) or MUJOCO_GL=osmesa (needs libOSMesa) before Python starts. MuJoCo said:"
            f" {failure}"
        ) from failure
