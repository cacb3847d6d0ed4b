"""Settings of the policy update, and the names of all methods (Sec. 6, Sec. 7, App. C)."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from trellis.config.checks import (
    AT_LEAST_1,
    BETWEEN_0_AND_1,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Checked,
    one_of,
)

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
class StepConfig(Checked):
    """Settings of the policy update (Sec. 6, Sec. 7, App. C)."""

    method: str = field(default="trpo", metadata=METHOD)
    """Method: trpo, natural-gradient, empirical-fim, max-kl (solves Eq. 11; few parameters only),
    max-kl-step, policy-gradient, kl-penalty, or the gradient-free cem and cma."""
    max_kl: float = field(default=0.01, metadata=POSITIVE)
    """δ in Eq. 12: bound on the KL divergence. For policy-gradient, bound on ½‖Δθ‖²."""
    final_max_kl: float | None = field(default=None, metadata=POSITIVE)
    """δ at the end of training; δ changes linearly with the steps. Default: δ is constant."""
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
    entropy_bonus: float = field(default=0.0, metadata=NOT_NEGATIVE)
    """Coefficient of the policy's mean entropy, which is added to the surrogate L (not in the
    paper)."""
    min_log_std: float | None = None
    """Lower bound of the log standard deviation of continuous actions: steps stop there. Default:
    no bound."""

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

        self._require_applicable()

    def _require_applicable(self) -> None:
        """Raise a ValueError for settings that the method would ignore."""
        for name, default in _ignored(self.method, self.multiplier).items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name} has no effect with the method {self.method}"
                    + (" and a multiplier" if self.multiplier is not None else "")
                    + ": leave it out"
                )

    def without_ignored(self, method: str) -> "StepConfig":
        """Return these settings with the defaults of those that a method ignores."""
        return dataclasses.replace(self, **_ignored(method, self.multiplier))

    @property
    def is_search(self) -> bool:
        """Whether the method is a search (cem or cma) without gradients."""
        return self.method in SEARCH_METHODS


def _ignored(method: str, multiplier: float | None) -> dict[str, Any]:
    """Return the optional settings that a method ignores, with their defaults."""
    names: set[str] = set()
    if method in SEARCH_METHODS or method == "max-kl":
        names |= {"entropy_bonus", "min_log_std"}
    if method in SEARCH_METHODS or method == "kl-penalty" or multiplier is not None:
        names.add("final_max_kl")
    if method == "max-kl":
        names.add("line_search")
    return {f.name: f.default for f in dataclasses.fields(StepConfig) if f.name in names}
