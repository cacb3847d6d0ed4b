"""The update rules as rows of a table: curvature × step size × acceptance (Sec. 6, Sec. 7).

method             curvature   step size                            acceptance
trpo               analytic    scaled to δ                          surrogate up, mean KL ≤ δ
natural-gradient   analytic    fixed multiplier 1/λ                 always, if finite
empirical-fim      empirical   scaled to δ                          surrogate up, mean KL ≤ δ
max-kl             analytic    largest quadratic KL of a state = δ  surrogate up, max KL ≤ δ
policy-gradient    identity    √(2δ)/‖g‖, or fixed                  surrogate up, or always
kl-penalty         analytic    maximizes L − C·KL                   penalized objective up

cem and cma, which know neither gradient nor curvature, are not in it: `search/` has them.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_DAMPING = 0.1
"""Added to the diagonal of F in the solve, for directions of which the samples say nothing."""


class Curvature(enum.Enum):
    """Whose quadratic form measures the length of a step."""

    ANALYTIC = "analytic Fisher matrix"
    EMPIRICAL = "empirical Fisher matrix"
    IDENTITY = "identity"


class StepSize(enum.Enum):
    """How far to go along the direction."""

    SCALED_TO_MEAN_KL = "quadratic mean KL equals δ"
    SCALED_TO_MAX_KL = "largest quadratic KL of a state equals δ"
    SCALED_TO_NORM = "½‖Δθ‖² equals δ"
    FIXED = "fixed multiplier"
    PENALIZED = "maximizes L − C·KL"


class Acceptance(enum.Enum):
    """Which points the line search may end at."""

    MEAN_KL = "surrogate up and mean KL ≤ δ"
    MAX_KL = "surrogate up and max KL ≤ δ"
    SURROGATE_UP = "surrogate up"
    PENALIZED_UP = "L − C·KL up"
    FINITE = "always, if finite"


class Row(NamedTuple):
    """One update rule."""

    curvature: Curvature
    step_size: StepSize
    acceptance: Acceptance


METHODS: dict[str, Row] = {
    "trpo": Row(Curvature.ANALYTIC, StepSize.SCALED_TO_MEAN_KL, Acceptance.MEAN_KL),
    "natural-gradient": Row(Curvature.ANALYTIC, StepSize.FIXED, Acceptance.FINITE),
    "empirical-fim": Row(Curvature.EMPIRICAL, StepSize.SCALED_TO_MEAN_KL, Acceptance.MEAN_KL),
    "max-kl": Row(Curvature.ANALYTIC, StepSize.SCALED_TO_MAX_KL, Acceptance.MAX_KL),
    "policy-gradient": Row(Curvature.IDENTITY, StepSize.SCALED_TO_NORM, Acceptance.SURROGATE_UP),
    "kl-penalty": Row(Curvature.ANALYTIC, StepSize.PENALIZED, Acceptance.PENALIZED_UP),
}

SEARCH_METHODS = ("cem", "cma")
"""What moves θ by the returns of whole episodes alone; their settings are `SearchConfig`'s."""


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
        def require(condition: bool, name: str, what: str) -> None:
            if not condition:
                raise ValueError(f"{name} must be {what}, got {getattr(self, name)!r}")

        known = (*METHODS, *SEARCH_METHODS)
        require(self.method in known, "method", f"one of {', '.join(known)}")
        require(self.max_kl > 0, "max_kl", "> 0")
        require(self.multiplier is None or self.multiplier > 0, "multiplier", "> 0")
        require(self.penalty > 0, "penalty", "> 0")
        require(self.cg_iterations >= 1, "cg_iterations", "at least 1")
        require(self.cg_tolerance >= 0, "cg_tolerance", ">= 0")
        require(self.damping >= 0, "damping", ">= 0")
        require(0 < self.fisher_fraction <= 1, "fisher_fraction", "in (0, 1]")
        require(0 < self.backtrack_ratio < 1, "backtrack_ratio", "between 0 and 1")
        require(self.max_backtracks >= 0, "max_backtracks", ">= 0")
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

    @property
    def row(self) -> Row:
        """The rule that these settings come down to."""
        if self.is_search:
            raise ValueError(
                f"{self.method} has no trust region: make its trainer with"
                " trellis.learners.make_trainer"
            )
        row = METHODS[self.method]
        if self.method == "policy-gradient" and self.multiplier is not None:
            row = row._replace(step_size=StepSize.FIXED, acceptance=Acceptance.FINITE)
        if not self.line_search:
            row = row._replace(acceptance=Acceptance.FINITE)
        return row
