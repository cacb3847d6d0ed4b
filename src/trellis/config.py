"""Everything that a run is: frozen, nested, validated when made, written to `config.json`.

A run is a pure function of this (and of the software's versions). What can be worked out from other
settings is a property, never a setting of its own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

SCHEMA_VERSION = 1
"""Of config.json; raised when a setting changes its meaning."""
UPDATE_RULES = (
    "trpo",
    "natural-gradient",
    "empirical-fim",
    "max-kl",
    "policy-gradient",
    "kl-penalty",
)
"""Methods that step along a gradient; `optimization/rules.py` says how each of them does."""
SEARCH_METHODS = ("cem", "cma")
"""Methods that search θ by the returns of whole episodes; their settings are `SearchConfig`'s."""
DEFAULT_DAMPING = 0.1
"""Added to the diagonal of F in the solve, for directions of which the samples say nothing."""


def _require(condition: bool, config: Any, name: str, what: str) -> None:
    if not condition:
        raise ValueError(f"{name} must be {what}, got {getattr(config, name)!r}")


@dataclass(frozen=True)
class PolicyConfig:
    """π_θ."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of the tanh layers; none for a linear policy."""
    channels: tuple[int, ...] = (16, 16)
    """Of the convolutions before them (4×4, stride 2), where observations are pictures; the
    critic's too."""
    hidden_biases: bool = True
    """Whether hidden layers have biases; the paper's swimmer has none."""
    initial_log_std: float = 0.0
    """Where the log standard deviation of continuous actions starts."""
    output_scale: float = 0.01
    """Gain of the last layer's initialization."""


@dataclass(frozen=True)
class VineConfig:
    """Trunks and branches of the vine sampler (Sec. 5.2)."""

    trunks: int = 16
    """Trajectories that advance together; a new one starts from ρ₀ where one ends."""
    trunk_length: int = 1000
    """Time steps of each row of trunks in an iteration."""
    states: int = 125
    """N, the size of the rollout set: states of the trunks that branch."""
    actions: int = 4
    """K, actions tried in each of them; where every action is tried, as many as there are."""
    rollout_length: int = 100
    """Time steps after which a rollout is cut, its first action included."""
    proposal: Literal["auto", "policy", "uniform", "every"] = "auto"
    """q, where the actions come from: the policy, the uniform distribution, or every action once;
    auto is the policy for continuous actions, every action where they are no more than K, else
    uniform."""
    common_random_numbers: bool = True
    """The rollouts of one state share their noise, that of actions and of the environment."""
    bootstrap: bool = False
    """Let the critic say what follows where a rollout is cut; the paper counts it as zero."""

    def __post_init__(self):
        for name in ("trunks", "trunk_length", "states", "actions", "rollout_length"):
            _require(getattr(self, name) >= 1, self, name, "at least 1")
        visited = self.trunks * self.trunk_length
        _require(
            self.states <= visited,
            self,
            "states",
            f"at most the {visited:,} that {self.trunks} trunks of {self.trunk_length:,} visit",
        )
        kinds = ("auto", "policy", "uniform", "every")
        _require(self.proposal in kinds, self, "proposal", "auto, policy, uniform or every")


@dataclass(frozen=True)
class SamplingConfig:
    """How states and actions are collected (Sec. 5)."""

    num_envs: int = 32
    """Environments that advance together along single paths."""
    steps_per_env: int = 64
    """Time steps of each of them in an iteration."""
    whole_paths: bool = False
    """Start every iteration from ρ₀ (the paper), instead of going on where the last one stopped."""
    sampler: Literal["single-path", "vine"] = "single-path"
    """Single path (Sec. 5.1), or vine (Sec. 5.2), which needs environments that can be put back."""
    vine: VineConfig = field(default_factory=VineConfig)
    shards: int = 1
    """Equal parts that the environments (with vine, trunks and rollout set) are divided into, which
    can be spread over the workers of a cluster: each with random streams of its own, so part of the
    result, as the number of workers is not."""

    def __post_init__(self):
        _require(self.num_envs >= 1, self, "num_envs", "at least 1")
        _require(self.steps_per_env >= 1, self, "steps_per_env", "at least 1")
        _require(self.sampler in ("single-path", "vine"), self, "sampler", "single-path or vine")
        _require(self.shards >= 1, self, "shards", "at least 1")
        parts = {"trunks": self.vine.trunks, "states": self.vine.states}
        for name, value in (parts if self.is_vine else {"num_envs": self.num_envs}).items():
            if value % self.shards:
                raise ValueError(
                    f"{name} must be a multiple of shards, which divide them evenly; got"
                    f" {value} for {self.shards} shards"
                )

    @property
    def is_vine(self) -> bool:
        """Whether branches grow from the paths."""
        return self.sampler == "vine"

    @property
    def part(self) -> "SamplingConfig":
        """What one shard samples."""
        if self.shards == 1:
            return self
        vine, n = self.vine, self.shards
        if self.is_vine:
            vine = dataclasses.replace(vine, trunks=vine.trunks // n, states=vine.states // n)
            return dataclasses.replace(self, vine=vine, shards=1)
        return dataclasses.replace(self, num_envs=self.num_envs // n, shards=1)

    @property
    def paths(self) -> int:
        """Environments that advance along the paths, or trunks."""
        return self.vine.trunks if self.is_vine else self.num_envs

    @property
    def path_length(self) -> int:
        """Time steps of each of them in an iteration."""
        return self.vine.trunk_length if self.is_vine else self.steps_per_env

    @property
    def starts_anew(self) -> bool:
        """Whether an iteration begins with new episodes."""
        return self.is_vine or self.whole_paths

    @property
    def batch_size(self) -> int:
        """States in an iteration."""
        return self.paths * self.path_length

    @property
    def most_steps(self) -> int:
        """Simulator steps in an iteration; with vine fewer where rollouts end early, and with the
        proposal `every` more where there are more than `actions`."""
        vine = self.vine
        branches = vine.states * vine.actions * vine.rollout_length if self.is_vine else 0
        return self.batch_size + branches


@dataclass(frozen=True)
class EstimationConfig:
    """What the samples are taken to say (Sec. 5, and what came after the paper)."""

    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """λ of generalized advantage estimation, where there is a critic."""
    critic: Literal["none", "linear", "mlp"] = "mlp"
    """What estimates V(s): nothing (the paper), least squares on features, or a network."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Units of the critic's tanh layers."""
    critic_learning_rate: float = 1e-3
    """Of Adam."""
    critic_epochs: int = 10
    """Passes over the batch in an iteration."""
    critic_minibatch: int = 128
    """Samples per gradient step of the critic."""
    advantages: Literal["center", "standardize", "raw"] = "standardize"
    """Subtract the batch's mean (the paper's presets), also divide by its standard deviation, or
    take advantages as they are."""
    discount_states: bool = False
    """Weight states by γᵗ, which is ρ_π of the paper, instead of uniformly."""
    normalize_observations: bool = True
    """Standardize observations by running statistics, frozen within an iteration, to within ±10."""
    normalize_rewards: bool = True
    """Divide rewards by the running standard deviation of the discounted return."""

    def __post_init__(self):
        _require(0 < self.gamma <= 1, self, "gamma", "in (0, 1]")
        _require(0 <= self.gae_lambda <= 1, self, "gae_lambda", "in [0, 1]")
        _require(self.critic in ("none", "linear", "mlp"), self, "critic", "none, linear or mlp")
        _require(self.critic_learning_rate > 0, self, "critic_learning_rate", "> 0")
        _require(self.critic_epochs >= 1, self, "critic_epochs", "at least 1")
        _require(self.critic_minibatch >= 1, self, "critic_minibatch", "at least 1")
        _require(
            self.advantages in ("center", "standardize", "raw"),
            self,
            "advantages",
            "center, standardize or raw",
        )


@dataclass(frozen=True)
class StepConfig:
    """How θ moves in one iteration."""

    method: str = "trpo"
    """Which row of the table: trpo, natural-gradient, empirical-fim, max-kl, policy-gradient,
    kl-penalty; or cem, cma, which search without gradients."""
    max_kl: float = 0.01
    """δ in Eq. 12: the bound on the KL divergence; for policy-gradient, on ½‖Δθ‖²."""
    multiplier: float | None = None
    """1/λ in Sec. 7: the fixed step of natural-gradient (which needs one) or policy-gradient."""
    penalty: float = 1.0
    """C of kl-penalty."""
    cg_iterations: int = 10
    """k in App. C.1: products with F per step."""
    cg_tolerance: float = 1e-10
    """Relative residual at which conjugate gradient may stop earlier."""
    damping: float = DEFAULT_DAMPING
    """Added to the diagonal of F in the solve."""
    damping_in_step_length: bool = False
    """Whether the damping also counts in the quadratic form that sets the step length."""
    fisher_fraction: float = 0.1
    """The part of the data that F is computed on (App. C.1); never fewer than 1,000 samples."""
    line_search: bool = True
    """Whether to check the step at all; without, the full step is taken if it is finite."""
    backtrack_ratio: float = 0.8
    """By which the line search shrinks the step."""
    max_backtracks: int = 15
    """How often it may; then θ stays."""

    def __post_init__(self):
        known = (*UPDATE_RULES, *SEARCH_METHODS)
        _require(self.method in known, self, "method", f"one of {', '.join(known)}")
        _require(self.max_kl > 0, self, "max_kl", "> 0")
        _require(self.multiplier is None or self.multiplier > 0, self, "multiplier", "> 0")
        _require(self.penalty > 0, self, "penalty", "> 0")
        _require(self.cg_iterations >= 1, self, "cg_iterations", "at least 1")
        _require(self.cg_tolerance >= 0, self, "cg_tolerance", ">= 0")
        _require(self.damping >= 0, self, "damping", ">= 0")
        _require(0 < self.fisher_fraction <= 1, self, "fisher_fraction", "in (0, 1]")
        _require(0 < self.backtrack_ratio < 1, self, "backtrack_ratio", "between 0 and 1")
        _require(self.max_backtracks >= 0, self, "max_backtracks", ">= 0")
        if self.method == "natural-gradient" and self.multiplier is None:
            raise ValueError("natural-gradient takes a fixed step: set multiplier (1/λ), e.g. 0.1")
        if self.multiplier is not None and self.method not in (
            "natural-gradient",
            "policy-gradient",
        ):
            instead = "it searches without steps" if self.is_search else "use max_kl"
            raise ValueError(f"multiplier does not apply to {self.method}; {instead}")

    @property
    def is_search(self) -> bool:
        """Whether θ is searched for, instead of moved along a gradient."""
        return self.method in SEARCH_METHODS


@dataclass(frozen=True)
class SearchConfig:
    """How cem and cma search for θ; an iteration is a generation, played from ρ₀ to the end."""

    population: int | None = None
    """Members of a generation. None: as many as an iteration's steps (paths × their length) pay
    for if every episode lasts, but no fewer than the method needs."""
    episodes: int = 1
    """That each member plays, from the same initial states as all others; its fitness is their mean
    return, undiscounted."""
    path_length: int | None = None
    """Steps after which an episode is cut; None for the time limit of the task."""
    noisy_actions: bool = False
    """Draw actions, and search for their log stds too, instead of the most probable action at log
    stds that stay. The search explores in θ: it needs no noise besides."""
    initial_std: float | None = None
    """σ₀, about the policy's initialization, of a parameter of a unit with one input; with n inputs
    it is σ₀/√n. None: 1 for cem, whose spread hardly grows again, 0.3 for cma, which finds its
    own."""
    elite_fraction: float = 0.1
    """ρ of cem: the part of a generation that the next one is drawn from."""
    extra_variance: float = 0.05
    """ζ of cem: what is added to the variance at first, as a part of σ₀²."""
    noise_generations: int = 50
    """T of cem: in so many generations the extra variance shrinks to 0."""
    full_covariance_params: int = 100
    """cma learns a full covariance matrix for up to so many parameters, its diagonal beyond."""

    def __post_init__(self):
        _require(self.population is None or self.population >= 4, self, "population", "at least 4")
        _require(self.episodes >= 1, self, "episodes", "at least 1")
        long_enough = self.path_length is None or self.path_length >= 1
        _require(long_enough, self, "path_length", "at least 1")
        wide_enough = self.initial_std is None or self.initial_std > 0
        _require(wide_enough, self, "initial_std", "> 0")
        _require(0 < self.elite_fraction < 1, self, "elite_fraction", "between 0 and 1")
        _require(self.extra_variance >= 0, self, "extra_variance", ">= 0")
        _require(self.noise_generations >= 1, self, "noise_generations", "at least 1")
        _require(self.full_covariance_params >= 0, self, "full_covariance_params", ">= 0")


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    env: str
    """A Gymnasium id, such as Hopper-v5."""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    total_steps: int = 1_000_000
    """Simulator steps to train for; rounded up to whole iterations."""
    max_iterations: int | None = None
    """Ends the run after so many iterations, should they need fewer steps than that."""
    seed: int = 0
    """Of everything random."""
    preset: str | None = None
    """Where the settings came from; for the record."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    step: StepConfig = field(default_factory=StepConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    eval_every: int = 100_000
    """Simulator steps between evaluations; 0 for none but the last."""
    eval_episodes: int = 10
    """Episodes of each evaluation."""
    eval_drawn: bool = False
    """Evaluations draw actions from the policy, where the most probable one can get stuck."""
    checkpoint_every: int = 100_000
    """Simulator steps between checkpoints."""
    keep_checkpoints: int = 3
    """How many of them stay."""
    threads: int = 0
    """Of the simulator; 0 for all cores."""

    def __post_init__(self):
        _require(bool(self.env), self, "env", "the id of an environment")
        _require(self.total_steps >= 1, self, "total_steps", "at least 1")
        limit = self.max_iterations
        _require(limit is None or limit >= 1, self, "max_iterations", "at least 1")
        _require(0 <= self.seed < 2**63, self, "seed", "a nonnegative 63-bit number")
        _require(self.eval_every >= 0, self, "eval_every", ">= 0")
        _require(self.eval_episodes >= 1, self, "eval_episodes", "at least 1")
        _require(self.checkpoint_every >= 1, self, "checkpoint_every", "at least 1")
        _require(self.keep_checkpoints >= 1, self, "keep_checkpoints", "at least 1")
        _require(self.threads >= 0, self, "threads", ">= 0")
        bootstrap = self.sampling.is_vine and self.sampling.vine.bootstrap
        if bootstrap and self.estimation.critic == "none":
            raise ValueError("vine.bootstrap needs a critic: set critic to linear or mlp")
        if self.step.method == "natural-gradient" and self.estimation.advantages == "standardize":
            raise ValueError(
                "natural-gradient takes a fixed step, which dividing advantages by their standard"
                " deviation would make adaptive: set estimation.advantages to center"
            )
        if self.step.is_search and self.sampling.is_vine:
            raise ValueError(
                f"{self.step.method} plays whole episodes and has no use for vine's branches: use"
                " sampler single-path, or a method other than cem and cma"
            )

    def is_over(self, iteration: int, steps: int) -> bool:
        """Whether a run that has come so far is finished."""
        limited = self.max_iterations is not None and iteration >= self.max_iterations
        return limited or steps >= self.total_steps


def to_json(config: TrainConfig) -> dict[str, Any]:
    """The configuration as plain JSON values, with the version of their meaning."""
    return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(config)}


def from_json(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration back from JSON; unknown and missing settings are told apart by name."""
    values = dict(values)
    version = values.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"this configuration has schema version {version}, this software reads"
            f" {SCHEMA_VERSION}; use the version of trellis-rl that wrote it"
        )
    return _build(TrainConfig, values)


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    unknown = values.keys() - hints.keys()
    if unknown:
        raise ValueError(f"{kind.__name__} has no setting {', '.join(sorted(unknown))}")
    arguments = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            value = _build(hint, value)
        elif isinstance(value, list) and tuple in (hint, getattr(hint, "__origin__", None)):
            value = tuple(value)
        elif getattr(hint, "__origin__", None) is Literal and value not in get_args(hint):
            raise ValueError(f"{name} must be one of {', '.join(get_args(hint))}, got {value!r}")
        arguments[name] = value
    return kind(**arguments)
