"""Describes a MuJoCo task as data: a model, options, and three functions over whole batches.

The functions compute the start of an episode, the observation and the outcome of a step.
`MujocoBatch` runs any task. The tasks themselves are tables: `v5.TASKS` and `paper.TASKS`.
"""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

try:
    import mujoco
    from mujoco.batch import Batch, SimulationError
except ImportError as error:
    raise ImportError(
        "MuJoCo environments need mujoco 3.17 or newer. Run: pip install 'trellis-rl[mujoco]'"
    ) from error

__all__ = [
    "ASSETS",
    "Batch",
    "MujocoTask",
    "Outcome",
    "Physics",
    "SimulationError",
    "TaskOptions",
    "Values",
]

Values = NDArray[Any]
"""An array with one row per environment."""
MOST_SUBSTEPS = 1000
"""Largest number of physics steps per control step."""
COMMON_OPTIONS = ("xml_file", "frame_skip", "max_episode_steps")
"""Options that every task has."""
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
"""Folder of the model files in Gymnasium's package."""


class Physics(NamedTuple):
    """State of the simulations: live arrays of all of them, or copies of some rows."""

    coordinates: Values
    """qpos and qvel, concatenated as in MuJoCo's state."""
    qpos: Values
    """Generalized positions, one row per simulation."""
    qvel: Values
    """Generalized velocities, one row per simulation."""
    derived: Mapping[str, Values]
    """Other arrays of the task. After mj_step they belong to the state one substep earlier."""
    seconds: float
    """Simulated time of a step in seconds."""
    initial_qpos: Values
    """Initial positions of the model, without noise."""
    gear: Values
    """Torque of each actuator for a control of 1."""
    weight: float
    """Weight of the whole body in newtons."""
    position: Values
    """Position whose change is the velocity, for tasks with `MujocoTask.position`."""

    def rows(self, coordinates: Values, ids: NDArray[np.int64]) -> "Physics":
        """Return the physics of the environments `ids` with new coordinates."""
        split = self.qpos.shape[1]
        return self._replace(
            coordinates=coordinates,
            qpos=coordinates[:, :split],
            qvel=coordinates[:, split:],
            derived={name: values[ids] for name, values in self.derived.items()},
        )


class Reported(Mapping[str, Values]):
    """Quantities to report, computed when somebody asks for them: samplers never do.

    Args:
        compute: Function that returns them. Its arrays must not change after the step.
    """

    def __init__(self, compute: Callable[[], dict[str, Values]]):
        self._compute = compute

    @functools.cached_property
    def _values(self) -> dict[str, Values]:
        return self._compute()

    def __getitem__(self, name: str) -> Values:
        """Return a quantity by its name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of quantities."""
        return len(self._values)


class Outcome(NamedTuple):
    """Rewards, terminations and reported quantities of a step, one row per environment."""

    reward: Values
    """Reward of the step."""
    terminated: NDArray[np.bool_]
    """Whether the step ended the episode in a terminal state."""
    info: Mapping[str, Values]
    """Quantities to report, by name."""


TaskOptions = SimpleNamespace
"""Options of a task as attributes, with Gymnasium's names where Gymnasium has them."""


@dataclasses.dataclass(frozen=True)
class MujocoTask:
    """Environment in MuJoCo, described as data."""

    xml_file: str
    """Model file: a name in Gymnasium's package, or a path."""
    frame_skip: int
    """Number of physics steps per step of the environment."""
    start: Callable[[NDArray[np.int64], "mujoco.MjModel", TaskOptions], tuple[Values, Values]]
    """Function (seeds, model, options) -> qpos and qvel, one row per seed."""
    observe: Callable[[Physics, TaskOptions], Values]
    """Function (physics, options) -> observations, in a new array."""
    outcome: Callable[[Physics, Values, Values, TaskOptions], Outcome]
    """Function (physics, qpos before the step, actions, options) -> outcome. Tasks with `position`
    get that before the step instead of qpos."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Names and defaults of the task's options."""
    max_episode_steps: int = 1000
    """Default time limit."""
    derived: Mapping[str, Callable[["Batch"], Values]] = dataclasses.field(default_factory=dict)
    """Live arrays of the batch that the functions need in addition to qpos and qvel."""
    forward_at_reset: bool = False
    """Whether the first observation needs derived arrays, which mj_forward computes. mj_forward
    does not change the state, not even its warm start."""
    contact_forces: bool = False
    """Whether the task needs `cfrc_ext` after a step, which `ContactBatch` computes."""
    position: Callable[[Physics, "mujoco.MjModel", TaskOptions], Values] | None = None
    """Function (physics, model, options) -> derived position of each body. Its value before a step
    takes the place of qpos in `outcome`. It is not a function of the state, so snapshots hold it.
    """
    terminated: Callable[[Physics, TaskOptions], NDArray[np.bool_]] | None = None
    """Function (physics, options) -> the `terminated` of `outcome`. Only for tasks whose `outcome`
    depends on qpos, qvel and actions alone: rewards of many steps are then computed together."""
    load: Callable[[str, TaskOptions], "mujoco.MjModel"] = lambda path, _: (
        mujoco.MjModel.from_xml_path(path)
    )
    """Function (path, options) -> model."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Names and defaults of all options, including those that every task has."""
        return {name: getattr(self, name) for name in COMMON_OPTIONS} | dict(self.options)

    def with_options(self, env_id: str, given: Mapping[str, Any]) -> TaskOptions:
        """Return the default options, updated with `given`; raise for unknown or invalid ones.

        Args:
            env_id: Id of the environment, for the message.
            given: Options that the user passed.
        """
        known = self.defaults
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise TypeError(
                    f"{env_id} has no option {name!r}"
                    + (f"; did you mean {near[0]!r}?" if near else ".")
                    + f" Its options are {', '.join(sorted(known))}."
                )
        skip = given.get("frame_skip", self.frame_skip)
        if not isinstance(skip, int) or not 1 <= skip <= MOST_SUBSTEPS:
            raise ValueError(
                f"{env_id}: frame_skip must be a whole number from 1 to {MOST_SUBSTEPS}, got"
                f" {skip!r}"
            )
        return TaskOptions(**{**known, **given})


def model_path(xml_file: str) -> Path:
    """Return the path of a model file, which may be a name in Gymnasium's package."""
    path = Path(xml_file).expanduser()
    if not path.is_absolute() and not xml_file.startswith("."):
        path = ASSETS / path
    if not path.exists():
        raise FileNotFoundError(f"there is no MuJoCo model at {path}: check xml_file={xml_file!r}")
    return path
