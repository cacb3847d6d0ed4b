"""The step from θ_old to θ (Sec. 6, App. C): a direction, a length, and a search that checks both.

    g = ∇L(θ_old)      s ≈ F⁻¹g by conjugate gradient      β from δ and sᵀFs      θ = θ_old + fβs

with f ≤ 1 by backtracking until the point is acceptable. Which curvature, which length and which
acceptance is a row of the table in `methods.py`; this is the one function behind all of them. It
asks its `Objective` for a gradient, for products with F and for evaluations, and never learns where
those are computed: in one compiled program (`local.py`) or on many machines.
"""

import enum
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from trellis.config import StepConfig
from trellis.optimization.conjugate_gradient import Solution, WhileLoop, conjugate_gradient
from trellis.optimization.line_search import Search, backtrack, climb
from trellis.optimization.rules import Acceptance, Curvature, StepSize, rule_of

Array = Any  # a NumPy or a JAX array

CLIMB_EVALUATIONS = 12
"""Evaluations that kl-penalty spends on its step size."""


class Status(enum.IntEnum):
    """What became of a step. Anything but ACCEPTED left θ as it was."""

    ACCEPTED = 0
    NO_IMPROVEMENT = 1
    CONSTRAINT_VIOLATED = 2
    ZERO_GRADIENT = 3
    NOT_FINITE = 4
    CURVATURE_NOT_POSITIVE = 5


class Evaluation(NamedTuple):
    """How some θ compares with θ_old: means over states, and a maximum."""

    gain: Array
    """L(θ) − L(θ_old)."""
    mean_kl: Array
    max_kl: Array


class Objective(Protocol):
    """What a step asks, at a θ_old that was fixed beforehand."""

    def gradient(self) -> tuple[Array, Array]:
        """L(θ_old) and ∇L(θ_old)."""
        ...

    def fisher_product(self, v: Array) -> Array: ...

    def max_quadratic_kl(self, direction: Array) -> Array:
        """The largest ½dᵀF_s d over states s."""
        ...

    def evaluate(self, direction: Array, multiple: Array) -> Evaluation:
        """How θ_old + multiple·direction compares with θ_old. In these terms the points of a search
        are one vector and a number each, which is what travels to other machines."""
        ...


class StepInfo(NamedTuple):
    """What happened, told of the parameters that were returned."""

    status: Array
    surrogate_before: Array
    surrogate_after: Array
    mean_kl: Array
    max_kl: Array
    predicted_gain: Array
    """βgᵀs, the gain by the linear model at the fraction that was taken."""
    gradient_norm: Array
    step_norm: Array
    step_fraction: Array
    """f; 0 if θ stayed."""
    backtracks: Array
    cg_iterations: Array
    cg_residual: Array


class _Candidate(NamedTuple):
    theta: Array
    evaluation: Evaluation


def take_step(
    objective: Objective,
    theta: Array,
    config: StepConfig,
    while_loop: WhileLoop = jax.lax.while_loop,
) -> tuple[Array, StepInfo]:
    """One step by the rule of `config`: the new θ, or θ itself byte for byte, and what happened."""
    surrogate, g = objective.gradient()
    scale = jnp.max(jnp.abs(g))
    healthy = jnp.isfinite(surrogate) & jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(theta))
    movable = healthy & (scale > 0)
    # At unit scale the dot products below neither overflow nor underflow, whatever the rewards'
    # unit. The direction is put back to scale where its length matters.
    unit = jnp.where(movable, g / jnp.where(movable, scale, 1.0), 0.0)

    solution = _solve(objective, unit, config, while_loop)
    s = solution.x
    quadratic = s @ solution.product
    if config.damping_in_step_length:
        quadratic = quadratic + config.damping * (s @ s)
    length, usable = _length(objective, config, scale, unit, s, quadratic)
    ready = movable & usable

    zero = jnp.zeros_like(scale)
    start = _Candidate(theta, Evaluation(zero, zero, zero))

    def evaluate(fraction: Array) -> _Candidate:
        multiple = fraction * length
        return _Candidate(theta + multiple * s, objective.evaluate(s, multiple))

    search = _search(evaluate, start, config, ready, while_loop)
    new_theta, end = jax.tree.map(
        lambda new, old: jnp.where(search.accepted, new, old), search.point, start
    )
    fraction = jnp.where(search.accepted, search.fraction, 0.0)
    # √Σ at the scale of the largest entry, for the same reason as above.
    gradient_norm = jnp.where(healthy, scale * jnp.sqrt(unit @ unit), scale)
    info = StepInfo(
        status=_status(healthy, movable, usable, search, config),
        surrogate_before=surrogate,
        surrogate_after=surrogate + end.gain,
        mean_kl=end.mean_kl,
        max_kl=end.max_kl,
        predicted_gain=jnp.where(
            search.accepted, fraction * length * scale * (unit @ s), jnp.zeros_like(scale)
        ),
        gradient_norm=gradient_norm,
        step_norm=jnp.linalg.norm(new_theta - theta),
        step_fraction=fraction,
        backtracks=jnp.maximum(search.evaluations - 1, 0),
        cg_iterations=solution.iterations,
        cg_residual=solution.residual,
    )
    return new_theta, info


def _solve(
    objective: Objective, unit: Array, config: StepConfig, while_loop: WhileLoop
) -> Solution:
    """s ≈ F⁻¹·unit, and F s."""
    if rule_of(config).curvature is Curvature.IDENTITY:
        nothing = jnp.zeros((), unit.dtype)
        return Solution(unit, unit, jnp.zeros((), jnp.int32), nothing, jnp.ones((), bool))
    return conjugate_gradient(
        objective.fisher_product,
        unit,
        damping=config.damping,
        iterations=config.cg_iterations,
        tolerance=config.cg_tolerance,
        while_loop=while_loop,
    )


def _length(
    objective: Objective,
    config: StepConfig,
    scale: Array,
    unit: Array,
    s: Array,
    quadratic: Array,
) -> tuple[Array, Array]:
    """β, and whether it is a number to go by; `quadratic` is sᵀFs."""
    # A hair inside the bound, so that rounding does not turn a full step away.
    inside = 1.0 - jnp.sqrt(jnp.finfo(s.dtype).eps).astype(s.dtype)
    match rule_of(config).step_size:
        case StepSize.SCALED_TO_MEAN_KL | StepSize.SCALED_TO_NORM:
            usable = (quadratic > 0) & jnp.isfinite(quadratic)
            length = inside * jnp.sqrt(2 * config.max_kl / jnp.where(usable, quadratic, 1.0))
        case StepSize.SCALED_TO_MAX_KL:
            largest = objective.max_quadratic_kl(s)
            usable = (largest > 0) & jnp.isfinite(largest)
            length = inside * jnp.sqrt(config.max_kl / jnp.where(usable, largest, 1.0))
        case StepSize.FIXED:
            assert config.multiplier is not None  # StepConfig saw to it
            usable = jnp.any(s != 0)
            length = config.multiplier * scale
        case StepSize.PENALIZED:
            # The maximum of the model βgᵀs − Cβ²sᵀFs/2, from where the search climbs on.
            usable = (quadratic > 0) & jnp.isfinite(quadratic)
            model = scale * (unit @ s) / (config.penalty * jnp.where(usable, quadratic, 1.0))
            length = jnp.where(jnp.isfinite(model), model, 1.0)
    return jnp.where(usable, length, 0.0), usable


def _search(
    evaluate: Any, start: _Candidate, config: StepConfig, ready: Array, while_loop: WhileLoop
) -> Search:
    if rule_of(config).acceptance is Acceptance.PENALIZED_UP:
        return climb(
            evaluate,
            lambda candidate: jnp.where(
                _is_finite(candidate),
                candidate.evaluation.gain - config.penalty * candidate.evaluation.mean_kl,
                -jnp.inf,
            ),
            start,
            max_evaluations=CLIMB_EVALUATIONS,
            enabled=ready,
            while_loop=while_loop,
        )
    return backtrack(
        evaluate,
        lambda candidate: (
            _is_finite(candidate)
            & _improves(candidate.evaluation, config)
            & _satisfies(candidate.evaluation, config)
        ),
        start,
        ratio=config.backtrack_ratio,
        # Where anything finite is accepted, a step that is not finite is not tried again smaller.
        max_backtracks=0
        if rule_of(config).acceptance is Acceptance.FINITE
        else config.max_backtracks,
        enabled=ready,
        while_loop=while_loop,
    )


def _is_finite(candidate: _Candidate) -> Array:
    values = jnp.stack(candidate.evaluation)
    return jnp.all(jnp.isfinite(values)) & jnp.all(jnp.isfinite(candidate.theta))


def _improves(evaluation: Evaluation, config: StepConfig) -> Array:
    if rule_of(config).acceptance is Acceptance.FINITE:
        return jnp.ones((), bool)
    return evaluation.gain > 0


def _satisfies(evaluation: Evaluation, config: StepConfig) -> Array:
    match rule_of(config).acceptance:
        case Acceptance.MEAN_KL:
            return evaluation.mean_kl <= config.max_kl
        case Acceptance.MAX_KL:
            return evaluation.max_kl <= config.max_kl
        case _:
            return jnp.ones((), bool)


def _status(
    healthy: Array, movable: Array, usable: Array, search: Search, config: StepConfig
) -> Array:
    last: _Candidate = search.point
    refused = jnp.where(
        _satisfies(last.evaluation, config), Status.NO_IMPROVEMENT, Status.CONSTRAINT_VIOLATED
    )
    searched = jnp.where(_is_finite(last), refused, Status.NOT_FINITE)
    return jnp.select(
        [~healthy, ~movable, ~usable, search.accepted],
        [
            Status.NOT_FINITE,
            Status.ZERO_GRADIENT,
            Status.CURVATURE_NOT_POSITIVE,
            Status.ACCEPTED,
        ],
        searched,
    ).astype(jnp.int32)
