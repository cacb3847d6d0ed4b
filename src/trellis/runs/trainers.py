"""What runs, agents and commands ask of a trainer, and which one a configuration means."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from trellis.config import TrainConfig
from trellis.envs.batch import BatchEnv
from trellis.envs.spaces import Encoder
from trellis.estimation.normalization import Moments
from trellis.policies.policy import Policy
from trellis.search.trainer import SearchTrainer
from trellis.training.build import MakeEnv
from trellis.training.evaluation import Player
from trellis.training.state import Evaluation
from trellis.training.trainer import Trainer

State = Any
"""A `TrainState`, of the kind that the trainer itself makes."""


class Learner(Protocol):
    """One configuration's loop; what its methods do is said in `Trainer`."""

    config: TrainConfig
    env: BatchEnv
    policy: Policy
    encode: Encoder

    def start(self) -> State: ...
    def iterate(self, state: State) -> tuple[State, dict[str, Any]]: ...
    def normalizer(self, moments: Moments) -> Callable[[np.ndarray], np.ndarray]: ...
    def evaluate(self, state: State, episodes: int, *, best: bool = False) -> Evaluation: ...
    def player(self, state: State, rng: np.random.Generator, *, best: bool = False) -> Player: ...
    def freeze(self, state: State) -> tuple[dict[str, np.ndarray], dict[str, Any]]: ...
    def thaw(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> State: ...
    def close(self) -> None: ...


def make_trainer(
    config: TrainConfig,
    make_env: MakeEnv | None = None,
    policy: Policy | None = None,
    *,
    cluster: str | None = None,
    workers: int | None = None,
) -> Learner:
    """The trainer for the method of a configuration; arguments as those of `Trainer`, and the
    cluster that is to do the work instead of this process."""
    kind = SearchTrainer if config.step.is_search else Trainer
    if cluster is None:
        if workers is not None:
            raise ValueError("workers are those of a cluster: add --cluster local, or its address")
        return kind(config, make_env, policy)
    from trellis.cluster.team import team_on

    return kind(config, make_env, policy, make_team=team_on(cluster, workers))
