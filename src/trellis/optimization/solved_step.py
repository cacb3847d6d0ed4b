"""Takes the step of the method max-kl: the solution of Eq. 11 on the whole batch, in one process.

The other methods choose a direction and search along it (`step.py`). Here `max_kl.maximize` solves
the constrained problem, so there is no line search, no conjugate gradient and no damping.
"""

import jax.numpy as jnp
import numpy as np

from trellis.arrays import Array
from trellis.estimation.state_batch import StateBatch
from trellis.estimation.surrogate import Estimator
from trellis.optimization.max_kl import MOST_PARAMS, maximize
from trellis.optimization.objective import Start
from trellis.optimization.step import Status, StepInfo
from trellis.policies.policy import Policy


def require_tractable(policy: Policy) -> None:
    """Raise a ValueError if the policy has memory, or too many parameters for Eq. 11."""
    if policy.carry_size:
        raise ValueError(
            "method max-kl treats states one by one: use trpo for a policy with memory"
        )
    if policy.num_params > MOST_PARAMS:
        raise ValueError(
            f"method max-kl solves Eq. 11 for at most {MOST_PARAMS} parameters, and this policy has"
            f" {policy.num_params:,}; use a smaller policy, or the method max-kl-step, which"
            " shortens TRPO's step until no state's KL exceeds δ"
        )


def take_solved_step(
    policy: Policy,
    estimator: Estimator,
    start: Start,
    theta: Array,
    batch: StateBatch,
    max_kl: float,
    rng: np.random.Generator,
) -> tuple[Array, StepInfo]:
    """Solve Eq. 11 and return its θ with a description of the step.

    Args:
        policy: The policy.
        estimator: How the actions of a state are weighted.
        start: L and ∇L at θ_old.
        theta: θ_old.
        batch: The states with their actions and values.
        max_kl: δ.
        rng: Source of the solver's random starts.

    Returns:
        The new θ, or θ_old byte for byte if nothing better was found; and a description of the
        step.
    """
    sums = start.sums
    surrogate = float(sums.surrogate / sums.surrogate_weight)
    gradient = np.asarray(sums.gradient, np.float64) / float(sums.surrogate_weight)
    old, gain, mean_kl, largest_kl = np.asarray(theta), 0.0, 0.0, 0.0
    new = old
    if not (np.isfinite(surrogate) and np.isfinite(gradient).all() and np.isfinite(old).all()):
        status = Status.NOT_FINITE
    elif not gradient.any():
        status = Status.ZERO_GRADIENT
    else:
        found = maximize(policy, estimator, old, batch, max_kl, rng)
        status = Status.ACCEPTED if found.gain > 0 else Status.NO_IMPROVEMENT
        if found.gain > 0:
            new, gain = found.theta, found.gain
            mean_kl, largest_kl = found.mean_kl, found.max_kl
    change = new.astype(np.float64) - old
    zero = jnp.zeros((), jnp.int32)
    info = StepInfo(
        status=jnp.asarray(status, jnp.int32),
        surrogate_before=jnp.asarray(surrogate),
        surrogate_after=jnp.asarray(surrogate + gain),
        mean_kl=jnp.asarray(mean_kl),
        max_kl=jnp.asarray(largest_kl),
        predicted_gain=jnp.asarray(gradient @ change),
        gradient_norm=jnp.asarray(np.linalg.norm(gradient)),
        step_norm=jnp.asarray(np.linalg.norm(change)),
        step_fraction=jnp.asarray(float(status is Status.ACCEPTED)),
        backtracks=zero,
        cg_iterations=zero,
        cg_residual=jnp.zeros(()),
    )
    return new, info
