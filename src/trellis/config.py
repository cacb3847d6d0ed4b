"""Every setting of a run: frozen, nested dataclasses that are validated when created.

A run is a pure function of its settings and of the software's versions. `config.json` in the run
folder holds them all. A value that follows from other settings is a property, never a setting.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trellis.config_checks import (
    AT_LEAST_1,
    AT_LEAST_4,
    BETWEEN_0_AND_1,
    ENV_ID,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SIZES,
    SEED,
    UNIT_INTERVAL,
    Checked,
    one_of,
    read_settings,
)
from trellis.config_versions import SCHEMA_VERSION, to_current

CONFIG_FILE = "config.json"
"""File in a run folder that holds its settings."""
UPDATE_RULES = (
    "trpo",
    "natural-gradient",
    "empirical-fim",
    "max-kl",
    "max-kl-step",
    "policy-gradient",
    "kl-penalty",
)
"""Methods that use gradients. `optimization/rules.py` defines each of them."""
SEARCH_METHODS = ("cem", "cma")
"""Methods that search for θ by the returns of whole episodes. `SearchConfig` has their settings."""
METHODS = (*UPDATE_RULES, *SEARCH_METHODS)
"""Names of all methods."""
METHOD = one_of(METHODS)
DEFAULT_DAMPING = 0.1
"""Constant added to the diagonal of F, for directions that the samples say nothing about."""


@dataclass(frozen=True)
class PolicyConfig(Checked):
    """Settings of the policy network π_θ."""

    hidden: tuple[int, ...] = field(default=(64, 64), metadata=POSITIVE_SIZES)
    """Sizes of the hidden tanh layers. Empty for a linear policy."""
    channels: tuple[int, ...] = field(default=(16, 16), metadata=POSITIVE_SIZES)
    """Channels of the convolutions (4×4, stride 2) that policy and critic use for images."""
    hidden_biases: bool = True
    """Whether the hidden layers have biases. The paper's swimmer policy has none."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""
    output_scale: float = 0.01
    """Scale of the output layer's initial weights."""


@dataclass(frozen=True)
class VineConfig(Checked):
    """Settings of the vine sampler (Sec. 5.2)."""

    trunks: int = field(default=16, metadata=AT_LEAST_1)
    """Number of trunks that advance in parallel. When a trunk ends, a new one starts from ρ₀."""
    trunk_length: int = field(default=1000, metadata=AT_LEAST_1)
    """Time steps per parallel trunk and iteration."""
    states: int = field(default=125, metadata=AT_LEAST_1)
    """N in Sec. 5.2: number of trunk states that branch (the rollout set)."""
    actions: int = field(default=4, metadata=AT_LEAST_1)
    """K in Sec. 5.2: actions tried per branch state. The proposal `every` tries all actions."""
    rollout_length: int = field(default=100, metadata=AT_LEAST_1)
    """Maximum time steps per rollout, including its first action."""
    proposal: Literal["auto", "policy", "uniform", "mixture", "every"] = "auto"
    """q in Sec. 5.2: how branch actions are chosen: by the policy, uniformly, by either with equal
    chances (mixture), or every action once.
    auto: policy for continuous actions, every for at most K discrete actions, else uniform."""
    common_random_numbers: bool = True
    """Whether all rollouts from a state share their random numbers (actions and environment)."""
    bootstrap: bool = False
    """Whether the critic estimates the return after a cut rollout. The paper counts it as 0."""

    def __post_init__(self):
        super().__post_init__()
        visited = self.trunks * self.trunk_length
        if self.states > visited:
            raise ValueError(
                f"states must be at most trunks × trunk_length = {visited:,}, got {self.states}"
            )


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """Settings of the samples of an iteration (Sec. 5)."""

    num_envs: int = field(default=32, metadata=AT_LEAST_1)
    """Number of parallel environments (single path)."""
    steps_per_env: int = field(default=64, metadata=AT_LEAST_1)
    """Time steps per environment and iteration (single path)."""
    whole_paths: bool = False
    """Whether every iteration starts new episodes, as in the paper. Otherwise episodes continue."""
    sampler: Literal["single-path", "vine"] = "single-path"
    """Sampler: single path (Sec. 5.1), or vine (Sec. 5.2), which needs restorable environments."""
    vine: VineConfig = field(default_factory=VineConfig)
    """Settings of the vine sampler."""
    shards: int = field(default=1, metadata=AT_LEAST_1)
    """Number of equal parts of the environments, for the workers of a cluster. Each shard has its
    own random streams, so this number changes the result; the number of workers does not."""

    def __post_init__(self):
        super().__post_init__()
        parts = {"trunks": self.vine.trunks, "states": self.vine.states}
        for name, value in (parts if self.is_vine else {"num_envs": self.num_envs}).items():
            if value % self.shards:
                raise ValueError(
                    f"{name} must be a multiple of shards ({self.shards}), got {value}"
                )

    @property
    def is_vine(self) -> bool:
        """Whether the sampler is vine."""
        return self.sampler == "vine"

    @property
    def part(self) -> "SamplingConfig":
        """Settings of one shard."""
        vine, n = self.vine, self.shards
        if self.is_vine:
            vine = dataclasses.replace(vine, trunks=vine.trunks // n, states=vine.states // n)
            return dataclasses.replace(self, vine=vine, shards=1)
        return dataclasses.replace(self, num_envs=self.num_envs // n, shards=1)

    @property
    def paths(self) -> int:
        """Number of parallel paths: environments, or trunks with vine."""
        return self.vine.trunks if self.is_vine else self.num_envs

    @property
    def path_length(self) -> int:
        """Time steps per path and iteration."""
        return self.vine.trunk_length if self.is_vine else self.steps_per_env

    @property
    def starts_new_episodes(self) -> bool:
        """Whether every iteration starts with new episodes."""
        return self.is_vine or self.whole_paths

    @property
    def batch_size(self) -> int:
        """Number of path states per iteration."""
        return self.paths * self.path_length

    @property
    def most_steps(self) -> int:
        """Planned simulator steps per iteration.

        With vine, rollouts that end early need fewer. The proposal `every` needs more if the
        environment has more actions than `actions`.
        """
        vine = self.vine
        branches = vine.states * vine.actions * vine.rollout_length if self.is_vine else 0
        return self.batch_size + branches


@dataclass(frozen=True)
class EstimationConfig(Checked):
    """Settings of advantages, Q-values and the critic (Sec. 5; the critic came after the paper)."""

    gamma: float = field(default=0.99, metadata=FRACTION)
    """Discount factor γ."""
    gae_lambda: float = field(default=0.95, metadata=UNIT_INTERVAL)
    """λ of generalized advantage estimation (GAE). Needs a critic."""
    critic: Literal["none", "linear", "mlp"] = "mlp"
    """Model of V(s): none (the paper), linear (least squares on features) or mlp (a network)."""
    baseline: Literal["none", "constant", "time"] = "constant"
    """Baseline of Q̂: none, constant (the mean of the batch) or time (the mean of the other paths at
    the same time of their episodes). Only single path without a critic uses it."""
    critic_hidden: tuple[int, ...] = field(default=(64, 64), metadata=POSITIVE_SIZES)
    """Sizes of the critic's hidden tanh layers."""
    critic_learning_rate: float = field(default=1e-3, metadata=POSITIVE)
    """Adam learning rate of the critic."""
    critic_epochs: int = field(default=10, metadata=AT_LEAST_1)
    """Passes over the batch per critic fit."""
    critic_minibatch: int = field(default=128, metadata=AT_LEAST_1)
    """Samples per gradient step of the critic."""
    advantages: Literal["center", "standardize", "raw"] = "standardize"
    """Scaling of the advantages: center (subtract the mean; the paper's presets), standardize (also
    divide by the standard deviation) or raw."""
    discount_states: bool = False
    """Whether states are weighted by γᵗ (the paper's ρ_π) instead of uniformly."""
    normalize_observations: bool = True
    """Whether observations are standardized with running moments and clipped to ±10."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the discounted return."""


@dataclass(frozen=True)
class StepConfig(Checked):
    """Settings of the policy update (Sec. 6, Sec. 7, App. C)."""

    method: str = field(default="trpo", metadata=METHOD)
    """Method: trpo, natural-gradient, empirical-fim, max-kl (solves Eq. 11; few parameters only),
    max-kl-step, policy-gradient, kl-penalty, or the gradient-free cem and cma."""
    max_kl: float = field(default=0.01, metadata=POSITIVE)
    """δ in Eq. 12: bound on the KL divergence. For policy-gradient, bound on ½‖Δθ‖²."""
    multiplier: float | None = field(default=None, metadata=POSITIVE)
    """1/λ in Sec. 7: fixed step size. natural-gradient needs it, policy-gradient may have it.
    Default: not set."""
    penalty: float = field(default=1.0, metadata=POSITIVE)
    """C, the coefficient of the KL penalty (kl-penalty)."""
    cg_iterations: int = field(default=10, metadata=AT_LEAST_1)
    """k in App. C.1: maximum conjugate gradient iterations per step."""
    cg_tolerance: float = field(default=1e-10, metadata=NOT_NEGATIVE)
    """Relative residual at which conjugate gradient stops early."""
    damping: float = field(default=DEFAULT_DAMPING, metadata=NOT_NEGATIVE)
    """Constant added to the diagonal of F when solving for the step direction."""
    damping_in_step_length: bool = False
    """Whether the quadratic form that sets the step length includes the damping."""
    fisher_fraction: float = field(default=0.1, metadata=FRACTION)
    """Fraction of the samples used for F (App. C.1), but at least 1,000 samples."""
    line_search: bool = True
    """Whether a line search checks the step. Without it, any finite full step is taken."""
    backtrack_ratio: float = field(default=0.8, metadata=BETWEEN_0_AND_1)
    """Factor by which the line search shrinks the step."""
    max_backtracks: int = field(default=15, metadata=NOT_NEGATIVE)
    """Maximum shrinks per line search. If all fail, θ stays unchanged."""

    def __post_init__(self):
        super().__post_init__()
        if self.method == "natural-gradient" and self.multiplier is None:
            raise ValueError(
                "multiplier must be set for natural-gradient, for example to 0.1, got None"
            )
        if self.multiplier is not None and self.method not in (
            "natural-gradient",
            "policy-gradient",
        ):
            instead = "" if self.is_search else " (set max_kl instead)"
            raise ValueError(
                f"multiplier must be None for {self.method}{instead}, got {self.multiplier}"
            )

    @property
    def is_search(self) -> bool:
        """Whether the method is a search (cem or cma) without gradients."""
        return self.method in SEARCH_METHODS


@dataclass(frozen=True)
class SearchConfig(Checked):
    """Settings of cem and cma. An iteration is one generation of whole episodes."""

    population: int | None = field(default=None, metadata=AT_LEAST_4)
    """Population size. Default: as many members as fit in one iteration's step budget, but at least
    40 (CEM) or 4 + 3 ln n (CMA)."""
    episodes: int = field(default=1, metadata=AT_LEAST_1)
    """Episodes per member, from the same initial states for all. Fitness is the mean undiscounted
    return."""
    path_length: int | None = field(default=None, metadata=AT_LEAST_1)
    """Maximum time steps per episode. Default: the time limit of the environment."""
    noisy_actions: bool = False
    """Whether members sample their actions, and the search includes the log standard deviations.
    Without it, members take the most probable action."""
    initial_std: float | None = field(default=None, metadata=POSITIVE)
    """σ₀: a parameter of a unit with n inputs starts with standard deviation σ₀/√n. Default: 1 for
    cem, 0.3 for cma."""
    elite_fraction: float = field(default=0.1, metadata=BETWEEN_0_AND_1)
    """ρ of cem: fraction of a generation whose moments define the next one."""
    extra_variance: float = field(default=0.05, metadata=NOT_NEGATIVE)
    """ζ of cem: extra variance in the first generation, as a fraction of σ₀²."""
    noise_generations: int = field(default=50, metadata=AT_LEAST_1)
    """T of cem: generations until the extra variance reaches 0."""
    full_covariance_params: int = field(default=100, metadata=NOT_NEGATIVE)
    """Maximum number of parameters for a full covariance matrix (cma). Above it, a diagonal one."""


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

        if self.step.method == "max-kl" and self.sampling.shards > 1:
            raise ValueError(
                "shards must be 1 for max-kl, which solves Eq. 11 in one process, got"
                f" {self.sampling.shards}; use max-kl-step"
            )

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
