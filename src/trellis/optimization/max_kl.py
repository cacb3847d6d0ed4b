"""The problem with a KL constraint at every state, solved as it is written (Eq. 11).

    maximize L(θ)   subject to   KL(π_old(·|s_n) ‖ π_θ(·|s_n)) ≤ δ   for each of N sampled states

The paper replaces the maximum KL by the mean over states (Eq. 12), because Eq. 11 is too expensive
for large policies. For small ones it can be solved. The method is sequential quadratic programming
(SLSQP of SciPy) in float64, with exact derivatives of L and of every state's KL. The variables are

    θ = θ_old + √(2δ)·B z        BᵀFB = I

so that the trust region has about the size of the unit ball. SLSQP stops where a step changes the
gain by less than `TOLERANCE` of what the linear model of L promises in the trust region. L is not
concave, so the best result over several starts is taken.

Few states are at their bound in the end, so constraints are generated: SLSQP starts with no
state's constraint. The states that violate theirs most are added, and SLSQP runs again, until none
is violated. A bound on the mean KL, which the constraints imply, limits the first steps.

The step is then shortened until the constraints hold for the θ that is returned, after it is
rounded to the dtype of θ_old.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trellis.arrays import Array
from trellis.estimation.state_batch import StateBatch
from trellis.estimation.surrogate import Estimator, surrogate_gains
from trellis.policies.policy import Policy

MOST_PARAMS = 64
"""Largest number of parameters: each iteration of SLSQP differentiates the KL of every chosen
state."""
GAIN_TOLERANCE = 1e-4
"""Relative error of the gain in L that tests allow."""
TOLERANCE = 1e-9
"""Tolerance of SLSQP, relative to the gain that the linear model of L promises."""
STARTS = 3
"""Number of starts: θ_old, then random points within the constraints."""
ITERATIONS = 200
"""Largest number of iterations of SLSQP."""
ADDED_STATES = 64
"""Number of states whose constraints are added at a time."""
VIOLATION = 1e-7
"""Relative violation of a constraint up to which it is not added."""
BISECTIONS = 40
"""Halvings in search of the longest step that rounds to inside the constraints."""


class Optimum(NamedTuple):
    """A solution of Eq. 11."""

    theta: np.ndarray
    """The parameters, in the dtype of θ_old; θ_old itself if nothing better was found."""
    gain: float
    """L(θ) − L(θ_old), in float64."""
    mean_kl: float
    """Weighted mean KL over states."""
    max_kl: float
    """Largest KL of any state."""
    iterations: int
    """Iterations of SLSQP over all starts."""


class _Problem(NamedTuple):
    """Data of the problem, in float64."""

    batch: StateBatch
    """States of the surrogate."""
    old_log_prob: Array
    """log π_old of their actions."""
    constrained: "_Constrained"
    """All states of the constraint."""


class _Constrained(NamedTuple):
    """States whose KL is bounded."""

    observation: Array
    """Observations of these states."""
    old_params: Any
    """Their distribution under θ_old."""


def maximize(
    policy: Policy,
    estimator: Estimator,
    theta: Array,
    batch: StateBatch,
    max_kl: float,
    rng: np.random.Generator,
    *,
    starts: int = STARTS,
) -> Optimum:
    """Solve Eq. 11 on the states of `batch`.

    Args:
        policy: A policy with few parameters.
        estimator: How L weights the actions of a state.
        theta: θ_old.
        batch: The sampled states; a state is constrained if its `kl_weight` is positive.
        max_kl: δ.
        rng: Source of the random starts.
        starts: Number of starts.

    Returns:
        The solution, rounded to the dtype of θ_old so that it meets every constraint.
    """
    with jax.enable_x64(True):
        return _Solver(policy, estimator, theta, batch, max_kl).solve(rng, starts)


class _Solver:
    """SLSQP on one problem, in the scaled variables z."""

    def __init__(
        self, policy: Policy, estimator: Estimator, theta: Array, batch: StateBatch, max_kl: float
    ) -> None:
        self._dtype, self._max_kl = np.asarray(theta).dtype, max_kl
        self._old = old = np.asarray(theta, np.float64)
        batch = jax.tree.map(_to_float64, batch)
        constrained = batch.kl_weight > 0
        self._kl_weight = batch.kl_weight[constrained]
        observation = batch.observation[constrained]
        batch = jax.tree.map(lambda leaf: leaf[batch.surrogate_weight > 0], batch)
        states = _Constrained(observation, _params(policy, old, observation))
        problem = jax.device_put(_Problem(batch, _log_prob(policy, old, batch), states))
        self._policy, self._observation = policy, observation
        self._chosen = np.zeros(0, np.int64)
        self._gain = functools.partial(_gain_and_gradient, policy, estimator, problem)
        self._kl = functools.partial(_kl, policy, problem.constrained)
        self._mean_kl_slope = functools.partial(_mean_kl_slope, policy, problem.constrained)
        self._gradient = np.asarray(self._gain(old)[1])
        whitening = _whitening(np.asarray(_fisher(policy, problem.constrained, old)))
        self._basis = np.sqrt(2 * max_kl) * whitening

    def solve(self, rng: np.random.Generator, starts: int) -> Optimum:
        """Return the best optimum over the starts."""
        best = Optimum(self._old.astype(self._dtype), 0.0, 0.0, 0.0, 0)
        # The gain that the linear model of L promises in the trust region.
        promise = float(np.linalg.norm(self._basis.T @ self._gradient))
        if not (np.isfinite(promise) and promise > 0):
            return best
        total = 0
        for index in range(starts):
            size = self._basis.shape[1]
            z, iterations = self._from(
                np.zeros(size) if index == 0 else rng.normal(size=size), promise
            )
            total += iterations
            best = max(best, self._inside(z), key=lambda optimum: optimum.gain)
        return best._replace(iterations=total)

    def _from(self, z: np.ndarray, promise: float) -> tuple[np.ndarray, int]:
        """Run SLSQP from a start until no state violates its constraint.

        Returns:
            z, and the number of iterations of SLSQP.
        """
        while not self._largest_kl(self._theta(z)) <= self._max_kl / 2:
            z = z / 2
        total = 0
        while True:
            z, iterations = self._with_chosen(z, promise)
            total += iterations
            kl = np.asarray(self._kl(self._theta(z)))
            violated = np.flatnonzero(kl > self._max_kl * (1 + VIOLATION))
            violated = np.setdiff1d(violated, self._chosen)
            if not len(violated):  # Also where KLs are not numbers.
                return z, total
            worst = violated[np.argsort(kl[violated])[-ADDED_STATES:]]
            self._chosen = np.concatenate([self._chosen, worst])

    def _with_chosen(self, start: np.ndarray, promise: float) -> tuple[np.ndarray, int]:
        """Run SLSQP with the constraints of the chosen states, and that of the mean KL."""
        import scipy.optimize  # Here, because it takes a while to load.

        basis, count = self._basis, len(self._chosen)
        padding = -count % ADDED_STATES  # Few different shapes, so few compilations.
        chosen = np.pad(self._chosen, (0, padding))
        observation = jax.tree.map(lambda leaf: leaf[chosen], self._observation)
        states = _Constrained(observation, _params(self._policy, self._old, observation))

        def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
            gain, gradient = self._gain(self._theta(z))
            return -float(gain) / promise, -(basis.T @ np.asarray(gradient)) / promise

        def slack(z: np.ndarray) -> np.ndarray:
            kl = np.asarray(self._kl(self._theta(z)))
            return 1 - np.append(kl[self._chosen], kl.mean()) / self._max_kl

        def slack_slopes(z: np.ndarray) -> np.ndarray:
            theta = self._theta(z)
            each = np.asarray(_kl_slopes(self._policy, states, theta))[:count]
            return -np.vstack([each, self._mean_kl_slope(theta)]) @ basis / self._max_kl

        found = scipy.optimize.minimize(
            loss,
            start,
            jac=True,
            method="SLSQP",
            constraints={"type": "ineq", "fun": slack, "jac": slack_slopes},
            options={"ftol": TOLERANCE, "maxiter": ITERATIONS},
        )
        return found.x, int(found.nit)

    def _inside(self, z: np.ndarray) -> Optimum:
        """Return the longest part of the step whose rounded parameters meet every constraint."""

        def rounded(fraction: float) -> np.ndarray:
            return self._theta(fraction * z).astype(self._dtype)

        low, high = 0.0, 1.0
        if self._largest_kl(rounded(1.0)) <= self._max_kl:
            low = 1.0
        else:
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                feasible = self._largest_kl(rounded(middle)) <= self._max_kl
                low, high = (middle, high) if feasible else (low, middle)
        found = rounded(low)
        exact = found.astype(np.float64)
        kl = np.asarray(self._kl(exact))
        mean_kl = float(np.average(kl, weights=self._kl_weight))
        return Optimum(found, float(self._gain(exact)[0]), mean_kl, float(kl.max()), 0)

    def _theta(self, z: np.ndarray) -> np.ndarray:
        return self._old + self._basis @ z

    def _largest_kl(self, theta: np.ndarray) -> float:
        return float(np.max(self._kl(theta.astype(np.float64))))


def _whitening(fisher: np.ndarray) -> np.ndarray:
    """Return a basis of the directions that change the policy, each with a curvature of 1.

    Directions of no curvature change no distribution at any state. Left in, they would only collect
    rounding errors.
    """
    values, vectors = np.linalg.eigh(fisher)
    kept = values > 1e-10 * values.max()
    return vectors[:, kept] / np.sqrt(values[kept])


def _to_float64(leaf: Array) -> np.ndarray:
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf


@functools.partial(jax.jit, static_argnums=0)
def _params(policy: Policy, theta: Array, observation: Array) -> Any:
    return policy.distribution_params(theta, observation)[0]


@functools.partial(jax.jit, static_argnums=0)
def _log_prob(policy: Policy, theta: Array, batch: StateBatch) -> Array:
    params = _params(policy, theta, batch.observation)
    of_actions = jax.vmap(policy.distribution.log_prob, in_axes=(None, 1), out_axes=1)
    return of_actions(params, batch.action)


def _mean_gain(policy: Policy, estimator: Estimator, problem: _Problem, theta: Array) -> Array:
    """Return L(θ) − L(θ_old)."""
    batch = problem.batch
    log_prob = _log_prob(policy, theta, batch)
    gains = surrogate_gains(estimator, problem.old_log_prob, log_prob, batch.log_q, batch.value)
    return jnp.average(gains, weights=batch.surrogate_weight)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gain_and_gradient(
    policy: Policy, estimator: Estimator, problem: _Problem, theta: Array
) -> tuple[Array, Array]:
    return jax.value_and_grad(_mean_gain, argnums=3)(policy, estimator, problem, theta)


@functools.partial(jax.jit, static_argnums=0)
def _kl(policy: Policy, states: _Constrained, theta: Array) -> Array:
    params = _params(policy, theta, states.observation)
    return policy.distribution.kl(old=states.old_params, new=params)


@functools.partial(jax.jit, static_argnums=0)
def _kl_slopes(policy: Policy, states: _Constrained, theta: Array) -> Array:
    """Return the gradient of every state's KL, (state, params)."""
    return jax.jacfwd(lambda theta: _kl(policy, states, theta))(theta)


@functools.partial(jax.jit, static_argnums=0)
def _mean_kl_slope(policy: Policy, states: _Constrained, theta: Array) -> Array:
    """Return the gradient of the unweighted mean KL over states."""
    return jax.grad(lambda theta: jnp.mean(_kl(policy, states, theta)))(theta)


@functools.partial(jax.jit, static_argnums=0)
def _fisher(policy: Policy, states: _Constrained, theta: Array) -> Array:
    """Return F as the Hessian of the mean KL at θ_old, where its gradient is 0."""
    return jax.hessian(lambda theta: jnp.mean(_kl(policy, states, theta)))(theta)
