"""A MuJoCo task as data: a model, options, and three functions over all environments at once.

The functions give the start of an episode, the observation and the outcome of a step. `MujocoBatch`
runs any task. The tasks themselves are tables: `v5.TASKS` and `paper.TASKS`.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
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
        "MuJoCo's environments need mujoco 3.17 or newer: pip install 'trellis-rl[mujoco]'"
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
COMMON_OPTIONS = ("xml_file", "frame_skip", "max_episode_steps")
"""TaskOptions that every task has besides its own."""
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


class Physics(NamedTuple):
    """What a task computes from: the live arrays of all simulations, or copies of some rows."""

    coordinates: Values
    """qpos and qvel side by side, as they lie in the state."""
    qpos: Values
    qvel: Values
    derived: Mapping[str, Values]
    """Other arrays of the task. As after mj_step, they belong to the state one substep earlier."""
    seconds: float
    """Simulated time of a step."""
    initial_qpos: Values
    """Positions of the model before noise."""
    gear: Values
    """Torque of each actuator at control 1."""
    weight: float
    """Weight of the whole body in newtons."""

    def rows(self, coordinates: Values, ids: NDArray[np.int64]) -> "Physics":
        """Return the physics of the environments `ids`, which have these coordinates."""
        split = self.qpos.shape[1]
        return self._replace(
            coordinates=coordinates,
            qpos=coordinates[:, :split],
            qvel=coordinates[:, split:],
            derived={name: values[ids] for name, values in self.derived.items()},
        )


class Outcome(NamedTuple):
    """Rewards, ends and reported quantities of a step, a row per environment."""

    reward: Values
    terminated: NDArray[np.bool_]
    info: dict[str, Values]


# Attributes are the task's options; their names are Gymnasium's wherever it has them.
TaskOptions = SimpleNamespace


@dataclasses.dataclass(frozen=True)
class MujocoTask:
    """An environment in MuJoCo, as data."""

    xml_file: str
    """Model file: a name in Gymnasium's package, or a path."""
    frame_skip: int
    """Physics steps for each step of the environment."""
    start: Callable[[NDArray[np.int64], "mujoco.MjModel", TaskOptions], tuple[Values, Values]]
    """(seeds, model, options) -> qpos and qvel, a row per seed."""
    observe: Callable[[Physics, TaskOptions], Values]
    """(physics, options) -> observations, in a new array."""
    outcome: Callable[[Physics, Values, Values, TaskOptions], Outcome]
    """(physics, qpos before the step, actions, options) -> Outcome."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Names and defaults of the task's options."""
    max_episode_steps: int = 1000
    """Time limit by default."""
    derived: Mapping[str, Callable[["Batch"], Values]] = dataclasses.field(default_factory=dict)
    """Live arrays of the batch that the functions need besides qpos and qvel."""
    forward_at_reset: bool = False
    """Whether a first observation needs derived arrays. The state is the same without them:
    mj_forward leaves no trace in it, not even a warm start."""
    load: Callable[[str, TaskOptions], "mujoco.MjModel"] = lambda path, _: (
        mujoco.MjModel.from_xml_path(path)
    )
    """(path, options) -> model."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Names and defaults of all options, also those that every task has."""
        return {name: getattr(self, name) for name in COMMON_OPTIONS} | dict(self.options)

    def with_options(self, env_id: str, given: Mapping[str, Any]) -> TaskOptions:
        """Return the defaults with the options given; raise for names that the task lacks."""
        known = self.defaults
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise TypeError(
                    f"{env_id} has no option {name!r}"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                    + f" It takes {', '.join(sorted(known))}."
                )
        return TaskOptions(**{**known, **given})


def model_path(xml_file: str) -> Path:
    """Return the path of a model file, which may be a name in Gymnasium's package."""
    path = Path(xml_file).expanduser()
    if not path.is_absolute() and not xml_file.startswith("."):
        path = ASSETS / path
    if not path.exists():
        raise FileNotFoundError(f"there is no MuJoCo model at {path}")
    return path
