"""Defines the update rules as a table: curvature × step size × acceptance (Sec. 6, Sec. 7).

    method             curvature   step size                            acceptance
    trpo               analytic    scaled to δ                          surrogate up, mean KL ≤ δ
    natural-gradient   analytic    fixed multiplier 1/λ                 always, if finite
    empirical-fim      empirical   scaled to δ                          surrogate up, mean KL ≤ δ
    max-kl             –           solves Eq. 11                        surrogate up, max KL ≤ δ
    max-kl-step        analytic    largest quadratic KL of a state = δ  surrogate up, max KL ≤ δ
    policy-gradient    identity    √(2δ)/‖g‖, or fixed                  surrogate up, or always
    kl-penalty         analytic    maximizes L − C·KL                   penalized objective up

The method max-kl is not a step along a direction: `max_kl.py` solves its problem for small
policies. The methods cem and cma use neither gradients nor curvature and are in `search/`.
"""

import enum
from typing import NamedTuple

from trellis.config import StepConfig


class Curvature(enum.Enum):
    """Matrix whose quadratic form measures the length of a step."""

    ANALYTIC = "analytic Fisher matrix"
    EMPIRICAL = "empirical Fisher matrix"
    IDENTITY = "identity"


class StepSize(enum.Enum):
    """Rule for the length of the full step along the direction."""

    SCALED_TO_MEAN_KL = "quadratic mean KL equals δ"
    SCALED_TO_MAX_KL = "largest quadratic KL of a state equals δ"
    SCALED_TO_NORM = "½‖Δθ‖² equals δ"
    FIXED = "fixed multiplier"
    PENALIZED = "maximizes L − C·KL"
    SOLVED = "solves Eq. 11"


class Acceptance(enum.Enum):
    """Condition that a point must meet for the line search to accept it."""

    MEAN_KL = "surrogate up and mean KL ≤ δ"
    MAX_KL = "surrogate up and max KL ≤ δ"
    SURROGATE_UP = "surrogate up"
    PENALIZED_UP = "L − C·KL up"
    FINITE = "always, if finite"


class UpdateRule(NamedTuple):
    """Update rule of a method."""

    curvature: Curvature
    """Matrix that measures the length of a step."""
    step_size: StepSize
    """Rule for the length of the full step."""
    acceptance: Acceptance
    """Condition that the line search checks."""


RULES: dict[str, UpdateRule] = {
    "trpo": UpdateRule(Curvature.ANALYTIC, StepSize.SCALED_TO_MEAN_KL, Acceptance.MEAN_KL),
    "natural-gradient": UpdateRule(Curvature.ANALYTIC, StepSize.FIXED, Acceptance.FINITE),
    "empirical-fim": UpdateRule(
        Curvature.EMPIRICAL, StepSize.SCALED_TO_MEAN_KL, Acceptance.MEAN_KL
    ),
    "max-kl": UpdateRule(Curvature.ANALYTIC, StepSize.SOLVED, Acceptance.MAX_KL),
    "max-kl-step": UpdateRule(Curvature.ANALYTIC, StepSize.SCALED_TO_MAX_KL, Acceptance.MAX_KL),
    "policy-gradient": UpdateRule(
        Curvature.IDENTITY, StepSize.SCALED_TO_NORM, Acceptance.SURROGATE_UP
    ),
    "kl-penalty": UpdateRule(Curvature.ANALYTIC, StepSize.PENALIZED, Acceptance.PENALIZED_UP),
}


def rule_of(config: StepConfig) -> UpdateRule:
    """Return the update rule that these settings describe.

    Raises:
        ValueError: The method is cem or cma, which have no update rule.

    Example:
        >>> rule_of(StepConfig(method="trpo")).acceptance
        <Acceptance.MEAN_KL: 'surrogate up and mean KL ≤ δ'>
    """
    if config.is_search:
        raise ValueError(
            f"method {config.method!r} has no update rule: create its trainer with"
            " trellis.runs.trainers.make_trainer"
        )
    rule = RULES[config.method]
    if config.method == "policy-gradient" and config.multiplier is not None:
        rule = rule._replace(step_size=StepSize.FIXED, acceptance=Acceptance.FINITE)
    if not config.line_search:
        rule = rule._replace(acceptance=Acceptance.FINITE)
    return rule
