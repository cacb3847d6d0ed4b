"""The whole state of a training run: what a checkpoint holds, what the next iteration needs.

Environments are the one part that lives outside: the trainer takes their snapshot when a state is
frozen and puts it back when one is thawed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.estimation.critic import CriticState
from trellis.estimation.normalization import Moments
from trellis.policies.policy import Policy
from trellis.sampling.single_path import PathState


@dataclass(frozen=True)
class TrainState:
    """Between two iterations."""

    theta: np.ndarray
    critic: CriticState
    observation_moments: Moments
    return_moments: Moments
    discounted_return: np.ndarray
    """Running discounted return of each environment, for the scale of rewards, (N,)."""
    path: PathState | None
    """Where the environments stand; None if new episodes are to begin."""
    iteration: int = 0
    steps: int = 0
    best_return: float = -np.inf
    """Of all evaluations."""
    best_theta: np.ndarray | None = None
    best_moments: Moments | None = None
    """Observation statistics that go with `best_theta`."""

    def chosen(self, *, best: bool) -> tuple[np.ndarray, Moments]:
        """θ and the statistics that go with it: the last, or the best if there was one."""
        if best and self.best_theta is not None and self.best_moments is not None:
            return self.best_theta, self.best_moments
        return self.theta, self.observation_moments


@dataclass(frozen=True)
class Evaluation:
    """What a policy achieved."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def episodes(self) -> int:
        """How many there were."""
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        """Over episodes."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Over episodes."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """In steps."""
        return float(np.mean(self.lengths))


def freeze(state: TrainState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A state as named arrays and plain values, without the environments."""
    arrays = {"theta": state.theta, "discounted_return": state.discounted_return}
    arrays |= {f"critic/{name}": value for name, value in state.critic.items()}
    arrays |= moments_to_arrays("observation_moments", state.observation_moments)
    arrays |= moments_to_arrays("return_moments", state.return_moments)
    if state.path is not None:
        arrays |= {f"path/{name}": value for name, value in state.path._asdict().items()}
    if state.best_theta is not None and state.best_moments is not None:
        arrays["best_theta"] = state.best_theta
        arrays |= moments_to_arrays("best_moments", state.best_moments)
    values = {
        "iteration": state.iteration,
        "steps": state.steps,
        "best_return": state.best_return,
    }
    return {name: np.asarray(value) for name, value in arrays.items()}, values


def thaw(arrays: dict[str, np.ndarray], values: dict[str, Any]) -> TrainState:
    """The state back again."""
    critic = _with_prefix("critic/", arrays)
    path = _with_prefix("path/", arrays)
    has_best = "best_theta" in arrays
    return TrainState(
        theta=arrays["theta"],
        critic=critic,
        observation_moments=moments_from_arrays("observation_moments", arrays),
        return_moments=moments_from_arrays("return_moments", arrays),
        discounted_return=arrays["discounted_return"],
        path=PathState(**path) if path else None,
        iteration=int(values["iteration"]),
        steps=int(values["steps"]),
        best_return=float(values["best_return"]),
        best_theta=arrays["best_theta"] if has_best else None,
        best_moments=moments_from_arrays("best_moments", arrays) if has_best else None,
    )


def made_for(env: Any, policy: Policy) -> dict[str, Any]:
    """What a checkpoint remembers of its environment and of what its θ are the parameters of."""
    network, distribution = policy.network, policy.distribution
    shapes = " ".join("×".join(map(str, shape)) for shape in network.shapes)
    return {
        "spaces": {
            "observation space": str(env.observation_space),
            "action space": str(env.action_space),
        },
        "policy": f"{type(network).__qualname__} {shapes}, {type(distribution).__qualname__}",
    }


def require_same_make(
    values: Mapping[str, Any], theta: np.ndarray, env: Any, policy: Policy, env_id: str
) -> None:
    """Refuses a checkpoint of another environment or kind of policy, with the difference."""
    ours = made_for(env, policy)
    for name, theirs in values["spaces"].items():
        if theirs != ours["spaces"][name]:
            raise ValueError(
                f"this checkpoint is of another environment: its {name} is {theirs},"
                f" that of {env_id} is {ours['spaces'][name]}"
            )
    # The first checkpoints had no word about the policy.
    saved = values.get("policy", ours["policy"])
    if saved != ours["policy"] or theta.size != policy.num_params:
        raise ValueError(
            f"this checkpoint holds a policy of {theta.size} parameters ({saved}), the policy here"
            f" has {policy.num_params} ({ours['policy']}): pass the one that it was trained with,"
            " from Python, as TRPO.load(path, policy=…)"
        )


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def moments_to_arrays(name: str, moments: Moments) -> dict[str, np.ndarray]:
    """Statistics as named arrays."""
    return {f"{name}/{field}": getattr(moments, field) for field in ("count", "mean", "squares")}


def moments_from_arrays(name: str, arrays: Mapping[str, np.ndarray]) -> Moments:
    """Statistics back from where `freeze` put them."""
    return Moments(**_with_prefix(f"{name}/", arrays))
