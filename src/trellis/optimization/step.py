"""Takes the step from θ_old to θ: a direction, a length, and a line search (Sec. 6, App. C).

    g = ∇L(θ_old)      s ≈ F⁻¹g by conjugate gradient      β from δ and sᵀFs      θ = θ_old + fβs

The fraction f ≤ 1 comes from backtracking until the point is acceptable; kl-penalty searches for
the best f, which may be larger. One function, `take_step`, serves all update rules; curvature,
length and acceptance come from the table in `rules.py`. It asks its `Objective` for the gradient,
for products with F and for evaluations. The objective may compute them on other machines.
"""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from trellis.arrays import Array
from trellis.config import StepConfig
from trellis.optimization.conjugate_gradient import Solution, WhileLoop, conjugate_gradient
from trellis.optimization.line_search import Search, backtrack, climb
from trellis.optimization.objective import Objective
from trellis.optimization.rules import Acceptance, Curvature, StepSize, rule_of

CLIMB_EVALUATIONS = 12
"""Number of evaluations that kl-penalty uses to find its step size."""


class Status(enum.IntEnum):
    """Outcome of a step. Every outcome but ACCEPTED returns θ_old byte for byte."""

    ACCEPTED = 0, "The line search accepted a step."
    NO_IMPROVEMENT = 1, "No step length improved the surrogate; the parameters are unchanged."
    CONSTRAINT_VIOLATED = 2, "No step length met the KL constraint; the parameters are unchanged."
    ZERO_GRADIENT = (
        3,
        "The gradient is zero: no action is better than others; the parameters are unchanged.",
    )
    NOT_FINITE = 4, "A value or gradient is not finite; the parameters are unchanged."
    CURVATURE_NOT_POSITIVE = (
        5,
        "Curvature along the step is not positive; the parameters are unchanged. Try more damping.",
    )

    message: str
    """Outcome in a sentence."""

    def __new__(cls, value: int, message: str = ""):
        """Create a status with a message."""
        status = int.__new__(cls, value)
        status._value_, status.message = value, message
        return status


class StepInfo(NamedTuple):
    """Description of a step and of the parameters that it returned."""

    status: Int[Array, ""]
    """`Status` of the step, as an integer."""
    surrogate_before: Float[Array, ""]
    """Surrogate objective before the step, L(θ_old)."""
    surrogate_after: Float[Array, ""]
    """Surrogate objective after the step, L(θ)."""
    mean_kl: Float[Array, ""]
    """Mean KL(θ_old ‖ θ) over states."""
    max_kl: Float[Array, ""]
    """Largest KL(θ_old ‖ θ) of any state."""
    predicted_gain: Float[Array, ""]
    """Gain of L that its linear model predicts, fβgᵀs."""
    gradient_norm: Float[Array, ""]
    """Norm of the gradient, ‖∇L(θ_old)‖."""
    step_norm: Float[Array, ""]
    """Norm of the step, ‖θ − θ_old‖."""
    step_fraction: Float[Array, ""]
    """Fraction f of the full step; 0 if the step was rejected."""
    backtracks: Int[Array, ""]
    """Number of times that backtracking shrank the step; 0 for kl-penalty, which tries longer ones
    too."""
    cg_iterations: Int[Array, ""]
    """Number of products with F in conjugate gradient."""
    cg_residual: Float[Array, ""]
    """Relative residual of the solve for F⁻¹g."""


class StepInputs(NamedTuple):
    """Values of a step that may change from iteration to iteration."""

    max_kl: Any = None
    """δ of this step; None for that of the settings."""
    lower: Any = None
    """Lower bounds of θ, (params,); None for none. θ_old must meet them."""


AS_CONFIGURED = StepInputs()
"""Inputs of a step that follows its settings."""


class _Candidate(NamedTuple):
    """Candidate θ and its comparison with θ_old."""

    theta: Float[Array, " params"]
    """The parameters θ."""
    gain: Float[Array, ""]
    """Gain of the surrogate, L(θ) − L(θ_old)."""
    mean_kl: Float[Array, ""]
    """Mean KL(θ_old ‖ θ) over states."""
    max_kl: Float[Array, ""]
    """Largest KL(θ_old ‖ θ) of any state."""


def take_step(
    objective: Objective,
    theta: Float[Array, " params"],
    config: StepConfig,
    while_loop: WhileLoop = jax.lax.while_loop,
    inputs: StepInputs = AS_CONFIGURED,
) -> tuple[Float[Array, " params"], StepInfo]:
    """Take one step by the update rule of `config`.

    Args:
        objective: Gives the gradient, products with F and evaluations.
        theta: θ_old.
        config: Settings of the step.
        while_loop: `jax.lax.while_loop`, or `python_while` if the objective is not compilable.
        inputs: δ of this step, and lower bounds of θ.

    Returns:
        The new θ, or θ_old byte for byte if the step was rejected; and a description of the step.
    """
    max_kl = config.max_kl if inputs.max_kl is None else inputs.max_kl
    sums, fisher_weight = objective.start()
    surrogate = sums.surrogate / sums.surrogate_weight
    g = sums.gradient / sums.surrogate_weight
    scale = jnp.max(jnp.abs(g))
    healthy = jnp.isfinite(surrogate) & jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(theta))
    movable = healthy & (scale > 0)
    # At unit scale the dot products below neither overflow nor underflow, whatever the unit of the
    # rewards is. The scale is multiplied back in where the length of the direction matters.
    unit = jnp.where(movable, g / jnp.where(movable, scale, 1.0), 0.0)

    solution = _solve(objective, fisher_weight, unit, config, while_loop)
    s = solution.x
    quadratic = s @ solution.product
    if config.damping_in_step_length:
        quadratic = quadratic + config.damping * (s @ s)
    length, usable = _length(objective, config, max_kl, scale, unit, s, quadratic)
    ready = movable & usable

    def direction(multiple: Array) -> Array:
        """Return the direction of a candidate."""
        return s if inputs.lower is None else _bounded(theta, s, multiple, inputs.lower)

    zero = jnp.zeros_like(scale)
    start = _Candidate(theta, zero, zero, zero)

    def evaluate(fraction: Array) -> _Candidate:
        multiple = fraction * length
        towards = direction(multiple)
        found = objective.evaluate(towards, multiple)
        gain, mean_kl = found.gain / sums.surrogate_weight, found.kl / sums.kl_weight
        return _Candidate(theta + multiple * towards, gain, mean_kl, found.max_kl)

    search = _search(evaluate, start, config, max_kl, ready, while_loop)
    end: _Candidate = jax.tree.map(
        lambda new, old: jnp.where(search.accepted, new, old), search.point, start
    )
    fraction = jnp.where(search.accepted, search.fraction, 0.0)
    slope = scale * (unit @ direction(fraction * length))
    backtracks = jnp.maximum(search.evaluations - 1, 0)
    if rule_of(config).acceptance is Acceptance.PENALIZED_UP:
        backtracks = jnp.zeros_like(backtracks)
    # The norm is computed at the scale of the largest entry, for the same reason as above.
    gradient_norm = jnp.where(healthy, scale * jnp.sqrt(unit @ unit), scale)
    info = StepInfo(
        status=_status(healthy, movable, usable, search, config, max_kl),
        surrogate_before=surrogate,
        surrogate_after=surrogate + end.gain,
        mean_kl=end.mean_kl,
        max_kl=end.max_kl,
        predicted_gain=jnp.where(search.accepted, fraction * length * slope, jnp.zeros_like(scale)),
        gradient_norm=gradient_norm,
        step_norm=jnp.linalg.norm(end.theta - theta),
        step_fraction=fraction,
        backtracks=backtracks,
        cg_iterations=solution.iterations,
        cg_residual=solution.residual,
    )
    return end.theta, info


def _solve(
    objective: Objective,
    fisher_weight: Array,
    unit: Array,
    config: StepConfig,
    while_loop: WhileLoop,
) -> Solution:
    """Return s ≈ F⁻¹·unit, and F s."""
    if rule_of(config).curvature is Curvature.IDENTITY:
        nothing = jnp.zeros((), unit.dtype)
        return Solution(unit, unit, jnp.zeros((), jnp.int32), nothing, jnp.ones((), bool))
    return conjugate_gradient(
        lambda v: objective.fisher_product(v) / fisher_weight,
        unit,
        damping=config.damping,
        iterations=config.cg_iterations,
        tolerance=config.cg_tolerance,
        while_loop=while_loop,
    )


def _bounded(theta: Array, s: Array, multiple: Array, lower: Array) -> Array:
    """Return the direction from θ_old to the point nearest to θ_old + multiple·s within the bounds.

    Where that point meets the bounds, the direction keeps its bits.
    """
    too_low = theta + multiple * s < lower
    bounded = (lower - theta) / jnp.where(multiple > 0, multiple, 1.0)
    return jnp.where(too_low & (multiple > 0), jnp.minimum(bounded, 0.0), s)


def _length(
    objective: Objective,
    config: StepConfig,
    max_kl: Any,
    scale: Array,
    unit: Array,
    s: Array,
    quadratic: Array,
) -> tuple[Array, Array]:
    """Return β and whether it is usable; `quadratic` is sᵀFs."""
    # Slightly inside the bound, so that rounding does not reject a full step.
    inside = 1.0 - jnp.sqrt(jnp.finfo(s.dtype).eps).astype(s.dtype)
    match rule_of(config).step_size:
        case StepSize.SCALED_TO_MEAN_KL | StepSize.SCALED_TO_NORM:
            usable = (quadratic > 0) & jnp.isfinite(quadratic)
            length = inside * jnp.sqrt(2 * max_kl / jnp.where(usable, quadratic, 1.0))
        case StepSize.SCALED_TO_MAX_KL:
            largest = objective.max_quadratic_kl(s).value
            usable = (largest > 0) & jnp.isfinite(largest)
            length = inside * jnp.sqrt(max_kl / jnp.where(usable, largest, 1.0))
        case StepSize.FIXED:
            assert config.multiplier is not None  # StepConfig checks it.
            usable = jnp.any(s != 0)
            length = config.multiplier * scale
        case StepSize.PENALIZED:
            # The maximum of the model βgᵀs − Cβ²sᵀFs/2, where the search starts.
            usable = (quadratic > 0) & jnp.isfinite(quadratic)
            model = scale * (unit @ s) / (config.penalty * jnp.where(usable, quadratic, 1.0))
            length = jnp.where(jnp.isfinite(model), model, 1.0)
        case StepSize.SOLVED:
            raise ValueError(f"method {config.method} has no direction: use TrustRegion.step")
    return jnp.where(usable, length, 0.0), usable


def _search(
    evaluate: Any,
    start: _Candidate,
    config: StepConfig,
    max_kl: Any,
    ready: Array,
    while_loop: WhileLoop,
) -> Search:
    """Search along the direction for a point that the update rule accepts."""
    takes_any = rule_of(config).acceptance is Acceptance.FINITE

    def acceptable(candidate: _Candidate) -> Array:
        improves = takes_any | (candidate.gain > 0)
        return _is_finite(candidate) & improves & _satisfies(candidate, config, max_kl)

    def penalized(candidate: _Candidate) -> Array:
        objective = candidate.gain - config.penalty * candidate.mean_kl
        return jnp.where(_is_finite(candidate), objective, -jnp.inf)

    if rule_of(config).acceptance is Acceptance.PENALIZED_UP:
        return climb(
            evaluate,
            penalized,
            start,
            max_evaluations=CLIMB_EVALUATIONS,
            enabled=ready,
            while_loop=while_loop,
        )
    return backtrack(
        evaluate,
        acceptable,
        start,
        ratio=config.backtrack_ratio,
        # A rule that accepts any finite step does not retry a step that is not finite.
        max_backtracks=0 if takes_any else config.max_backtracks,
        enabled=ready,
        while_loop=while_loop,
    )


def _is_finite(candidate: _Candidate) -> Array:
    theta, *values = candidate
    return jnp.all(jnp.isfinite(jnp.stack(values))) & jnp.all(jnp.isfinite(theta))


def _satisfies(candidate: _Candidate, config: StepConfig, max_kl: Any) -> Array:
    """Return whether the candidate meets the KL constraint of the update rule, if it has one."""
    match rule_of(config).acceptance:
        case Acceptance.MEAN_KL:
            return candidate.mean_kl <= max_kl
        case Acceptance.MAX_KL:
            return candidate.max_kl <= max_kl
        case _:
            return jnp.ones((), bool)


def _status(
    healthy: Array,
    movable: Array,
    usable: Array,
    search: Search,
    config: StepConfig,
    max_kl: Any,
) -> Array:
    last: _Candidate = search.point
    meets = _satisfies(last, config, max_kl)
    rejected = jnp.where(meets, Status.NO_IMPROVEMENT, Status.CONSTRAINT_VIOLATED)
    searched = jnp.where(_is_finite(last), rejected, Status.NOT_FINITE)
    status = jnp.where(search.accepted, Status.ACCEPTED, searched)
    status = jnp.where(usable, status, Status.CURVATURE_NOT_POSITIVE)
    status = jnp.where(movable, status, Status.ZERO_GRADIENT)
    return jnp.where(healthy, status, Status.NOT_FINITE).astype(jnp.int32)
