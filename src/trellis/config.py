"""Everything that a run is: frozen, nested, validated when made, written to `config.json`.

A run is a pure function of this (and of the software's versions). What can be worked out from other
settings is a property, never a setting of its own.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from trellis.strict_json import shown

CONFIG_FILE = "config.json"
"""File of a run folder that holds its settings."""
SCHEMA_VERSION = 1
"""Version of config.json; raised when a setting changes its meaning."""
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
METHODS = (*UPDATE_RULES, *SEARCH_METHODS)
DEFAULT_DAMPING = 0.1
"""Added to the diagonal of F in the solve, for directions of which the samples say nothing."""


# What a setting must be, in words and as a check: the metadata of its field.
AT_LEAST_1 = {"at least 1": lambda value: value >= 1}
AT_LEAST_4 = {"at least 4": lambda value: value >= 4}
POSITIVE = {"> 0": lambda value: value > 0}
NOT_NEGATIVE = {">= 0": lambda value: value >= 0}
BETWEEN_0_AND_1 = {"between 0 and 1": lambda value: 0 < value < 1}
FRACTION = {"in (0, 1]": lambda value: 0 < value <= 1}
UNIT_INTERVAL = {"in [0, 1]": lambda value: 0 <= value <= 1}
METHOD = {f"one of {', '.join(METHODS)}": METHODS.__contains__}
ENV_ID = {"the id of an environment": bool}
SEED = {"a nonnegative 63-bit number": lambda value: 0 <= value < 2**63}


class Checked:
    """Settings that are checked when they are created, by the metadata and types of their fields.

    A setting whose default is None may be None.
    """

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(cast(Any, self)):
            value, rules = getattr(self, setting.name), setting.metadata
            if get_origin(setting.type) is Literal:
                choices = get_args(setting.type)
                rules = {f"{', '.join(choices[:-1])} or {choices[-1]}": choices.__contains__}
            for what, is_valid in rules.items():
                if not ((value is None and setting.default is None) or is_valid(value)):
                    raise ValueError(f"{setting.name} must be {what}, got {shown(value)}")


@dataclass(frozen=True)
class PolicyConfig:
    """π_θ."""

    hidden: tuple[int, ...] = (64, 64)
    """Units of the tanh layers; none for a linear policy."""
    channels: tuple[int, ...] = (16, 16)
    """Channels of the convolutions (4×4, stride 2) for pictures, of policy and critic."""
    hidden_biases: bool = True
    """Whether hidden layers have biases; the paper's swimmer has none."""
    initial_log_std: float = 0.0
    """Where the log standard deviation of continuous actions starts."""
    output_scale: float = 0.01
    """Gain of the last layer's initialization."""


@dataclass(frozen=True)
class VineConfig(Checked):
    """Trunks and branches of the vine sampler (Sec. 5.2)."""

    trunks: int = field(default=16, metadata=AT_LEAST_1)
    """Trajectories that advance together; a new one starts from ρ₀ where one ends."""
    trunk_length: int = field(default=1000, metadata=AT_LEAST_1)
    """Time steps of each row of trunks in an iteration."""
    states: int = field(default=125, metadata=AT_LEAST_1)
    """N, the size of the rollout set: states of the trunks that branch."""
    actions: int = field(default=4, metadata=AT_LEAST_1)
    """K, actions tried in each of them; where every action is tried, as many as there are."""
    rollout_length: int = field(default=100, metadata=AT_LEAST_1)
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
        super().__post_init__()
        visited = self.trunks * self.trunk_length
        if self.states > visited:
            raise ValueError(
                f"states must be at most the {visited:,} that {self.trunks} trunks of"
                f" {self.trunk_length:,} visit, got {self.states}"
            )


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """How states and actions are collected (Sec. 5)."""

    num_envs: int = field(default=32, metadata=AT_LEAST_1)
    """Environments that advance together along single paths."""
    steps_per_env: int = field(default=64, metadata=AT_LEAST_1)
    """Time steps of each of them in an iteration."""
    whole_paths: bool = False
    """Start every iteration from ρ₀ (the paper), instead of going on where the last one stopped."""
    sampler: Literal["single-path", "vine"] = "single-path"
    """Single path (Sec. 5.1), or vine (Sec. 5.2), which needs environments that can be restored."""
    vine: VineConfig = field(default_factory=VineConfig)
    shards: int = field(default=1, metadata=AT_LEAST_1)
    """Equal parts that the environments (with vine, trunks and rollout set) are divided into, which
    can be spread over the workers of a cluster: each with random streams of its own, so part of the
    result, as the number of workers is not."""

    def __post_init__(self):
        super().__post_init__()
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
    def starts_new_episodes(self) -> bool:
        """Whether every iteration starts with new episodes."""
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
class EstimationConfig(Checked):
    """What the samples are taken to say (Sec. 5, and what came after the paper)."""

    gamma: float = field(default=0.99, metadata=FRACTION)
    """Discount."""
    gae_lambda: float = field(default=0.95, metadata=UNIT_INTERVAL)
    """λ of generalized advantage estimation, where there is a critic."""
    critic: Literal["none", "linear", "mlp"] = "mlp"
    """What estimates V(s): nothing (the paper), least squares on features, or a network."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Units of the critic's tanh layers."""
    critic_learning_rate: float = field(default=1e-3, metadata=POSITIVE)
    """Adam learning rate."""
    critic_epochs: int = field(default=10, metadata=AT_LEAST_1)
    """Passes over the batch in an iteration."""
    critic_minibatch: int = field(default=128, metadata=AT_LEAST_1)
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


@dataclass(frozen=True)
class StepConfig(Checked):
    """How θ moves in one iteration."""

    method: str = field(default="trpo", metadata=METHOD)
    """Which row of the table: trpo, natural-gradient, empirical-fim, max-kl, policy-gradient,
    kl-penalty; or cem, cma, which search without gradients."""
    max_kl: float = field(default=0.01, metadata=POSITIVE)
    """δ in Eq. 12: the bound on the KL divergence; for policy-gradient, on ½‖Δθ‖²."""
    multiplier: float | None = field(default=None, metadata=POSITIVE)
    """1/λ in Sec. 7: the fixed step of natural-gradient (which needs one) or policy-gradient."""
    penalty: float = field(default=1.0, metadata=POSITIVE)
    """C of kl-penalty."""
    cg_iterations: int = field(default=10, metadata=AT_LEAST_1)
    """k in App. C.1: products with F per step."""
    cg_tolerance: float = field(default=1e-10, metadata=NOT_NEGATIVE)
    """Relative residual at which conjugate gradient may stop earlier."""
    damping: float = field(default=DEFAULT_DAMPING, metadata=NOT_NEGATIVE)
    """Added to the diagonal of F in the solve."""
    damping_in_step_length: bool = False
    """Whether the damping also counts in the quadratic form that sets the step length."""
    fisher_fraction: float = field(default=0.1, metadata=FRACTION)
    """The part of the data that F is computed on (App. C.1); never fewer than 1,000 samples."""
    line_search: bool = True
    """Whether to check the step at all; without, the full step is taken if it is finite."""
    backtrack_ratio: float = field(default=0.8, metadata=BETWEEN_0_AND_1)
    """By which the line search shrinks the step."""
    max_backtracks: int = field(default=15, metadata=NOT_NEGATIVE)
    """How often it may; then θ stays."""

    def __post_init__(self):
        super().__post_init__()
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
class SearchConfig(Checked):
    """How cem and cma search for θ; an iteration is a generation, played from ρ₀ to the end."""

    population: int | None = field(default=None, metadata=AT_LEAST_4)
    """Members of a generation. None: as many as an iteration's steps (paths × their length) pay
    for if every episode lasts, but no fewer than the method needs."""
    episodes: int = field(default=1, metadata=AT_LEAST_1)
    """That each member plays, from the same initial states as all others; its fitness is their mean
    return, undiscounted."""
    path_length: int | None = field(default=None, metadata=AT_LEAST_1)
    """Steps after which an episode is cut; None for the time limit of the task."""
    noisy_actions: bool = False
    """Draw actions, and search for their log stds too, instead of the most probable action at log
    stds that stay. The search explores in θ: it needs no noise besides."""
    initial_std: float | None = field(default=None, metadata=POSITIVE)
    """σ₀, about the policy's initialization, of a parameter of a unit with one input; with n inputs
    it is σ₀/√n. None: 1 for cem, whose spread hardly grows again, 0.3 for cma, which finds its
    own."""
    elite_fraction: float = field(default=0.1, metadata=BETWEEN_0_AND_1)
    """ρ of cem: the part of a generation that the next one is drawn from."""
    extra_variance: float = field(default=0.05, metadata=NOT_NEGATIVE)
    """ζ of cem: what is added to the variance at first, as a part of σ₀²."""
    noise_generations: int = field(default=50, metadata=AT_LEAST_1)
    """T of cem: in so many generations the extra variance shrinks to 0."""
    full_covariance_params: int = field(default=100, metadata=NOT_NEGATIVE)
    """cma learns a full covariance matrix for up to so many parameters, its diagonal beyond."""


@dataclass(frozen=True)
class TrainConfig(Checked):
    """A training run."""

    env: str = field(metadata=ENV_ID)
    """A Gymnasium id, such as Hopper-v5."""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment."""
    total_steps: int = field(default=1_000_000, metadata=AT_LEAST_1)
    """Simulator steps to train for; rounded up to whole iterations."""
    max_iterations: int | None = field(default=None, metadata=AT_LEAST_1)
    """Ends the run after so many iterations, should they need fewer steps than that."""
    seed: int = field(default=0, metadata=SEED)
    """Seed of everything random."""
    preset: str | None = None
    """Where the settings came from; for the record."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    step: StepConfig = field(default_factory=StepConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    eval_every: int = field(default=100_000, metadata=NOT_NEGATIVE)
    """Simulator steps between evaluations; 0 for none but the last."""
    eval_episodes: int = field(default=10, metadata=AT_LEAST_1)
    """Episodes of each evaluation."""
    eval_drawn: bool = False
    """Evaluations draw actions from the policy, where the most probable one can get stuck."""
    checkpoint_every: int = field(default=100_000, metadata=AT_LEAST_1)
    """Simulator steps between checkpoints."""
    keep_checkpoints: int = field(default=3, metadata=AT_LEAST_1)
    """How many of them stay."""
    threads: int = field(default=0, metadata=NOT_NEGATIVE)
    """Threads of the simulator; 0 for all cores."""

    def __post_init__(self):
        super().__post_init__()
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
    """Return the configuration that JSON values describe.

    Raises:
        ValueError: If a setting is unknown, missing or of the wrong type; the message names it.
    """
    _require_type("a configuration", values, isinstance(values, Mapping), "a JSON object")
    values = dict(values)
    version = values.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"this configuration has schema version {shown(version)}, this software reads"
            f" {SCHEMA_VERSION}; use the version of trellis-rl that wrote it"
        )
    return _build(TrainConfig, values)


JSON_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}
"""JSON types as error messages name them."""


def _build(kind: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    hints = get_type_hints(kind)
    unknown = values.keys() - hints.keys()
    if unknown:
        names = shown(", ".join(sorted(unknown)), quotes=False)
        raise ValueError(f"{kind.__name__} has no setting {names}")
    if kind is TrainConfig and "env" not in values:  # The one setting without a default.
        raise ValueError("TrainConfig needs the setting env")
    return kind(
        **{name: _read(prefix + name, value, hints[name]) for name, value in values.items()}
    )


def _read(name: str, value: Any, hint: Any) -> Any:
    """Return a JSON value as a setting of type `hint`, a list as a tuple."""
    if dataclasses.is_dataclass(hint):
        _require_type(name, value, isinstance(value, Mapping), "an object of settings")
        return _build(hint, value, f"{name}.")
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        _require_type(name, value, value in allowed, f"one of {', '.join(allowed)}")
    elif get_origin(hint) is tuple:
        whole = isinstance(value, list | tuple) and all(type(item) is int for item in value)
        _require_type(name, value, whole, "a list of whole numbers")
        return tuple(value)
    elif get_origin(hint) is Mapping:
        _require_type(name, value, isinstance(value, Mapping), "an object")
    else:
        kinds = get_args(hint) or (hint,)  # One type, or a union of one with None.
        fits = type(value) in kinds or (float in kinds and type(value) is int)
        words = " or ".join(JSON_NAMES[kind] for kind in kinds)
        _require_type(name, value, fits, words)
    return value


def _require_type(name: str, value: Any, fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{name} must be {what}, got {shown(value)}")
