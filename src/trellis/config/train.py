"""All settings of a run as one dataclass, and its form in JSON."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis.config.checks import AT_LEAST_1, ENV_ID, NOT_NEGATIVE, SEED, Checked, read_settings
from trellis.config.estimation import EstimationConfig
from trellis.config.policy import PolicyConfig
from trellis.config.sampling import SamplingConfig
from trellis.config.search import SearchConfig
from trellis.config.step import SEARCH_METHODS, StepConfig
from trellis.config.versions import SCHEMA_VERSION, to_current

WITHOUT_MEMORY = ("max-kl", *SEARCH_METHODS)
"""Methods that do not support policies with memory."""
CONFIG_FILE = "config.json"
"""File in a run folder that holds its settings."""


@dataclass(frozen=True)
class TrainConfig(Checked):
    """All settings of a training run."""

    env: str = field(metadata=ENV_ID)
    """Gymnasium id of the environment, such as Hopper-v5."""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    total_steps: int = field(default=1_000_000, metadata=AT_LEAST_1)
    """Simulator steps to train for, rounded up to whole iterations."""
    max_iterations: int | None = field(default=None, metadata=AT_LEAST_1)
    """Maximum number of iterations. Default: no limit."""
    seed: int = field(default=0, metadata=SEED)
    """Seed of all random numbers."""
    preset: str | None = None
    """Name of the preset that the settings came from."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """Settings of the policy network."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Settings of the samples of an iteration."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Settings of advantages and critic."""
    step: StepConfig = field(default_factory=StepConfig)
    """Settings of the policy update."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """Settings of cem and cma."""
    eval_every: int = field(default=100_000, metadata=NOT_NEGATIVE)
    """Simulator steps between evaluations. 0: evaluate only at the end."""
    eval_episodes: int = field(default=10, metadata=AT_LEAST_1)
    """Episodes per evaluation."""
    eval_drawn: bool = False
    """Whether evaluations are stochastic: sampled actions instead of the most probable ones."""
    checkpoint_every: int = field(default=100_000, metadata=AT_LEAST_1)
    """Simulator steps between checkpoints."""
    keep_checkpoints: int = field(default=3, metadata=AT_LEAST_1)
    """Number of checkpoints to keep."""
    keep_policies: bool = False
    """Whether to keep the policy of every iteration, which `trellis improvement` needs."""
    threads: int = field(default=0, metadata=NOT_NEGATIVE)
    """Simulator threads. 0: one per core."""

    def __post_init__(self):
        super().__post_init__()
        bootstrap = self.sampling.is_vine and self.sampling.vine.bootstrap
        if bootstrap and self.estimation.critic == "none":
            raise ValueError("critic must be linear or mlp for vine.bootstrap, got 'none'")
        if self.step.method == "natural-gradient" and self.estimation.advantages == "standardize":
            raise ValueError(
                "advantages must be center or raw for natural-gradient, whose step size is fixed,"
                " got 'standardize'"
            )
        if self.step.is_search and self.sampling.is_vine:
            raise ValueError(
                f"sampler must be single-path for {self.step.method}, which plays whole episodes,"
                " got 'vine'"
            )
        if self.policy.memory != "none" and self.step.method in WITHOUT_MEMORY:
            raise ValueError(
                f"memory must be none for {self.step.method}, which treats states one by one, got"
                f" {self.policy.memory!r}; use trpo"
            )
        if self.step.method == "max-kl" and self.sampling.shards > 1:
            raise ValueError(
                "shards must be 1 for max-kl, which solves Eq. 11 in one process, got"
                f" {self.sampling.shards}; use max-kl-step"
            )

        if self.estimation.compensate_normalization:
            self._require_compensation()

        if self.estimation.criterion == "average" and self.sampling.is_vine:
            raise ValueError("sampler must be single-path for criterion average, got 'vine'")
        floor, start = self.step.min_log_std, self.policy.initial_log_std
        if floor is not None and start < floor:
            raise ValueError(
                f"initial_log_std must be at least min_log_std, got {start} and {floor}"
            )

    def _require_compensation(self) -> None:
        """Raise unless the first layers can absorb a change of the observation statistics."""
        problems = {
            "needs normalize_observations": not self.estimation.normalize_observations,
            "needs critic mlp or none": self.estimation.critic == "linear",
            "needs hidden_biases": bool(self.policy.hidden) and not self.policy.hidden_biases,
            f"does not work with {self.step.method}": self.step.is_search,
        }
        for words in [words for words, is_true in problems.items() if is_true]:
            raise ValueError(f"compensate_normalization must be False: it {words}")

    def is_over(self, iteration: int, steps: int) -> bool:
        """Return whether a run with this many iterations and steps is finished."""
        limited = self.max_iterations is not None and iteration >= self.max_iterations
        return limited or steps >= self.total_steps


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration as plain JSON values, with the schema version."""
    return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(config)}


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration that JSON values describe.

    Raises:
        ValueError: A setting is unknown, missing or of the wrong type. The message names it.
    """
    if isinstance(values, Mapping):
        values = to_current(values)
    return read_settings(TrainConfig, values)
