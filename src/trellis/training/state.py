"""Defines `TrainState`, the state of a run between two iterations, without the environments.

A checkpoint holds this state as named arrays and plain values. The trainer adds the snapshots of
serializable environments.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.estimation.critic import CriticState
from trellis.inputs import Inputs
from trellis.moments import Moments
from trellis.sampling.samples import PathState


@dataclass(frozen=True)
class TrainState:
    """State of a run between two iterations."""

    theta: np.ndarray
    """Parameters of the policy, (params,)."""
    critic: CriticState
    """Parameters of the critic and of its optimizer; empty without a critic."""
    observation_moments: Moments
    """Running statistics of observations."""
    return_moments: Moments
    """Running statistics of discounted returns, which scale the rewards."""
    discounted_return: np.ndarray
    """Running discounted return of each environment, (env,)."""
    path: PathState | None
    """Position of the environments in their episodes; None if new episodes start."""
    iteration: int = 0
    """Number of iterations so far."""
    steps: int = 0
    """Number of simulator steps so far."""
    best_return: float = -np.inf
    """Highest mean return of an evaluation so far."""
    best_theta: np.ndarray | None = None
    """Parameters of the policy with that return."""
    best_moments: Moments | None = None
    """Observation statistics that go with `best_theta`."""
    best_iteration: int = 0
    """Number of iterations behind `best_theta`."""
    best_steps: int = 0
    """Number of simulator steps behind `best_theta`."""

    def chosen(self, *, best: bool) -> tuple[np.ndarray, Moments]:
        """Return θ and its observation statistics: the last, or those of the best evaluation."""
        if best and self.best_theta is not None and self.best_moments is not None:
            return self.best_theta, self.best_moments
        return self.theta, self.observation_moments


def to_arrays(state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a state as named arrays and plain values."""
    arrays = {"theta": state.theta, "discounted_return": state.discounted_return}
    arrays |= {f"critic/{name}": value for name, value in state.critic.items()}
    arrays |= state.observation_moments.to_arrays("observation_moments")
    arrays |= state.return_moments.to_arrays("return_moments")
    if state.path is not None:
        arrays |= {f"path/{name}": value for name, value in _path_arrays(state.path).items()}
    if state.best_theta is not None and state.best_moments is not None:
        arrays["best_theta"] = state.best_theta
        arrays |= state.best_moments.to_arrays("best_moments")
    names = ("iteration", "steps", "best_return", "best_iteration", "best_steps")
    values = {name: getattr(state, name) for name in names}
    return {name: np.asarray(value) for name, value in arrays.items()}, values


def from_arrays(arrays: dict[str, np.ndarray], values: Mapping[str, Any]) -> TrainState:
    """Return the state from the result of `to_arrays`."""
    path = with_prefix("path/", arrays)
    has_best = "best_theta" in arrays
    return TrainState(
        theta=arrays["theta"],
        critic=with_prefix("critic/", arrays),
        observation_moments=Moments.from_arrays("observation_moments", arrays),
        return_moments=Moments.from_arrays("return_moments", arrays),
        discounted_return=arrays["discounted_return"],
        path=_path_from_arrays(path) if path else None,
        iteration=int(values["iteration"]),
        steps=int(values["steps"]),
        best_return=float(values["best_return"]),
        best_theta=arrays["best_theta"] if has_best else None,
        best_moments=Moments.from_arrays("best_moments", arrays) if has_best else None,
        # Checkpoints before version 0.2.0 do not say when the best policy was evaluated.
        best_iteration=int(values.get("best_iteration", 0)),
        best_steps=int(values.get("best_steps", 0)),
    )


def _path_arrays(path: PathState) -> dict[str, np.ndarray]:
    """Return the position of the environments as arrays; pictures have names of their own."""
    arrays = {name: value for name, value in path._asdict().items() if value is not None}
    if isinstance(path.observation, Inputs):
        arrays["observation"] = path.observation.rows
        arrays |= {f"{PICTURE}{i}": each for i, each in enumerate(path.observation.pictures)}
    return arrays


def _path_from_arrays(arrays: dict[str, np.ndarray]) -> PathState:
    """Return the position of the environments from the result of `_path_arrays`."""
    pictures = [name for name in arrays if name.startswith(PICTURE)]
    rest: dict[str, Any] = {k: v for k, v in arrays.items() if k not in pictures}
    if pictures:
        ordered = tuple(arrays[f"{PICTURE}{i}"] for i in range(len(pictures)))
        rest["observation"] = Inputs(ordered, rest["observation"])
    return PathState(**rest)


PICTURE = "picture."
"""Start of the names of pictures, which a number follows."""
LEARNED = ("theta", "critic/", "observation_moments/", "return_moments/")
"""Names, or starts of names, of the arrays that training changes and that may be exchanged."""


def get_parameters(state: TrainState) -> dict[str, np.ndarray]:
    """Return copies of the parameters and statistics of a state, by name."""
    arrays, _ = to_arrays(state)
    return {k: v.copy() for k, v in arrays.items() if k.startswith(LEARNED)}


def with_parameters(state: TrainState, parameters: Mapping[str, np.ndarray]) -> TrainState:
    """Return a state with other parameters, as `get_parameters` names them.

    Raises:
        ValueError: A name, shape or value does not fit.
    """
    arrays, values = to_arrays(state)
    known = [name for name in arrays if name.startswith(LEARNED)]
    for name, value in parameters.items():
        if name not in known:
            raise ValueError(f"there is no parameter {name!r}; there are {', '.join(known)}")
        new = np.asarray(value, arrays[name].dtype)
        if new.shape != arrays[name].shape or not np.isfinite(new).all():
            raise ValueError(
                f"{name} must be finite numbers of shape {arrays[name].shape}, got shape"
                f" {new.shape}"
            )
        arrays[name] = new.copy()
    return dataclasses.replace(state, **vars(from_arrays(arrays, values)))


def with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names start with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
