"""The problem with a KL constraint at every state, solved as it is written (Eq. 11).

    maximize L(θ)   subject to   KL(π_old(·|s_n) ‖ π_θ(·|s_n)) ≤ δ   for each of N sampled states

The paper replaces the maximum KL by the mean over states (Eq. 12), because Eq. 11 is too expensive
for large policies. For small ones it can be solved. The method is a logarithmic barrier in float64:

    minimize φ(θ) = −t·L(θ) − Σ_n log(1 − KL_n(θ)/δ)   for t = t₀, 10t₀, 100t₀, …

Newton's method with exact derivatives finds each minimum, starting from the minimum before. θ_old
has a KL of 0 everywhere, so every point on the way satisfies every constraint. At the minimum for t
the gain in L is within N/t of the best point nearby, and t grows until N/t is a tenth of
`GAIN_TOLERANCE` of the gain. L is not concave: where the Hessian of φ is not positive definite, the
magnitudes of its eigenvalues replace them, and the best result over several starts is taken.

The constraints hold for the θ that is returned, after it is rounded to the dtype of θ_old.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trellis.arrays import Array
from trellis.estimation.surrogate import Estimator, StateBatch, surrogate_gains
from trellis.policies.policy import Policy

MOST_PARAMS = 64
"""Largest number of parameters: a Newton step takes as many passes over all states."""
GAIN_TOLERANCE = 1e-4
"""Relative tolerance of the gain in L."""
STARTS = 3
"""Number of starts: θ_old, then random points within the constraints."""
GROWTH = 10.0
"""Factor between consecutive values of t."""
NEWTON_STEPS = 100
"""Largest number of Newton steps for one value of t."""
DECREMENT = 1e-9
"""Newton's method ends where its quadratic model promises a smaller decrease of φ than this, or a
gain in L below a hundredth of `GAIN_TOLERANCE`."""
MOST_WEIGHT = 1e30
"""Largest t, reached only if nothing improves L."""
BISECTIONS = 30
"""Halvings of the last piece of the path, in search of a point that rounds to inside."""
TANGENTS = 32
"""Columns of the Hessian that are computed together."""


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
    gradient: np.ndarray
    """∇L(θ_old), in float64."""
    newton_steps: int
    """Newton steps over all starts."""


class _Problem(NamedTuple):
    """What φ depends on, in float64."""

    batch: StateBatch
    """States of the surrogate."""
    old_log_prob: Array
    """log π_old of their actions."""
    observation: Array
    """States of the constraint."""
    old_params: Any
    """Their distribution under θ_old."""
    max_kl: float
    """δ."""


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
    """The barrier method on one problem."""

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
        problem = _Problem(
            batch,
            _log_prob(policy, old, batch),
            observation,
            _params(policy, old, observation),
            max_kl,
        )
        problem = jax.device_put(problem)
        self._gain = functools.partial(_gain_and_gradient, policy, estimator, problem)
        self._kl = functools.partial(_kl, policy, problem)
        self._barrier = functools.partial(_barrier, policy, estimator, problem)
        self._derivatives = functools.partial(_derivatives, policy, estimator, problem)
        self.gradient = np.asarray(self._gain(old)[1])
        self._basis = _whitening(np.asarray(_fisher(policy, problem, old)))

    def solve(self, rng: np.random.Generator, starts: int) -> Optimum:
        """Return the best optimum over the starts."""
        best = Optimum(self._old.astype(self._dtype), 0.0, 0.0, 0.0, self.gradient, 0)
        if not (np.isfinite(self.gradient).all() and self.gradient.any()):
            return best
        total = 0
        for index in range(starts):
            start = self._old if index == 0 else self._random_start(rng)
            minima, steps = self._follow_path(start)
            total += steps
            best = max(best, self._round(minima), key=lambda optimum: optimum.gain)
        return best._replace(newton_steps=total)

    def _follow_path(self, theta: np.ndarray) -> tuple[list[np.ndarray], int]:
        """Return the minima of φ for growing t, and the number of Newton steps."""
        states, total, minima = len(self._kl_weight), 0, [self._old]
        # At first the barrier and L weigh the same within the trust region.
        slope = np.linalg.norm(self._basis.T @ self.gradient) * np.sqrt(2 * self._max_kl)
        t = states / max(float(slope), np.finfo(float).tiny)
        while True:
            theta, steps = self._minimize(theta, t)
            minima.append(theta)
            total += steps
            if states / t <= 0.1 * GAIN_TOLERANCE * float(self._gain(theta)[0]) or t > MOST_WEIGHT:
                return minima, total
            t *= GROWTH

    def _minimize(self, theta: np.ndarray, t: float) -> tuple[np.ndarray, int]:
        """Minimize φ for one value of t by Newton's method."""
        for step in range(NEWTON_STEPS):
            value, gradient, hessian = map(np.asarray, self._derivatives(theta, t))
            slope = self._basis.T @ gradient
            direction = -_newton_direction(slope, self._basis.T @ hessian @ self._basis)
            decrease, direction = -float(slope @ direction), self._basis @ direction
            gain = float(self._gain(theta)[0])
            if not decrease > max(DECREMENT, 0.01 * GAIN_TOLERANCE * t * gain):
                return theta, step
            length, wanted = 1.0, 1e-4 * decrease
            while not self._barrier(theta + length * direction, t) < value - length * wanted:
                length /= 2
                if length < 1e-12:  # Rounding hides any further decrease.
                    return theta, step
            theta = theta + length * direction
        return theta, NEWTON_STEPS

    def _random_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return a random point whose largest KL is at most δ/2."""
        step = rng.normal(size=self._old.shape)
        while not self._largest_kl(self._old + step) <= self._max_kl / 2:
            step = step / 2
        return self._old + step

    def _round(self, minima: list[np.ndarray]) -> Optimum:
        """Return the last point on the path whose rounded parameters meet every constraint."""

        def feasible(theta: np.ndarray) -> bool:
            return self._largest_kl(theta.astype(self._dtype)) <= self._max_kl

        # The minima come ever closer to the constraints, so the last ones may round to outside.
        last = max(index for index, theta in enumerate(minima) if feasible(theta))
        low = minima[last]
        if last + 1 < len(minima):
            high = minima[last + 1]
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                low, high = (middle, high) if feasible(middle) else (low, middle)
        found = low.astype(self._dtype)
        exact = found.astype(np.float64)
        kl = np.asarray(self._kl(exact))
        mean_kl = float(np.average(kl, weights=self._kl_weight))
        gain = float(self._gain(exact)[0])
        return Optimum(found, gain, mean_kl, float(kl.max()), self.gradient, 0)

    def _largest_kl(self, theta: np.ndarray) -> float:
        return float(np.max(self._kl(theta.astype(np.float64))))


def _newton_direction(gradient: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    """Return |H|⁻¹·gradient, where |H| has the magnitudes of the eigenvalues of H."""
    values, vectors = np.linalg.eigh(hessian)
    magnitudes = np.abs(values)
    magnitudes = np.maximum(magnitudes, 1e-12 * magnitudes.max() + np.finfo(float).tiny)
    return vectors @ ((vectors.T @ gradient) / magnitudes)


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
def _kl(policy: Policy, problem: _Problem, theta: Array) -> Array:
    params = _params(policy, theta, problem.observation)
    return policy.distribution.kl(old=problem.old_params, new=params)


@functools.partial(jax.jit, static_argnums=0)
def _fisher(policy: Policy, problem: _Problem, theta: Array) -> Array:
    """Return F as the Hessian of the mean KL at θ_old, where its gradient is 0."""
    return _hessian(lambda theta: jnp.mean(_kl(policy, problem, theta)), theta)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _barrier(
    policy: Policy, estimator: Estimator, problem: _Problem, theta: Array, t: float
) -> Array:
    """Return φ(θ); infinite outside the constraints."""
    slack = 1 - _kl(policy, problem, theta) / problem.max_kl
    inside = slack > 0
    barrier = -jnp.sum(jnp.log(jnp.where(inside, slack, 1.0)))
    value = barrier - t * _mean_gain(policy, estimator, problem, theta)
    return jnp.where(jnp.all(inside) & jnp.isfinite(value), value, jnp.inf)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _derivatives(
    policy: Policy, estimator: Estimator, problem: _Problem, theta: Array, t: float
) -> tuple[Array, Array, Array]:
    """Return φ, its gradient and its Hessian, a few columns of the Hessian at a time."""

    def function(theta: Array) -> Array:
        return _barrier(policy, estimator, problem, theta, t)

    value, gradient = jax.value_and_grad(function)(theta)
    return value, gradient, _hessian(function, theta)


def _hessian(function: Callable[[Array], Array], theta: Array) -> Array:
    """Return the Hessian at θ, a few columns at a time, which bounds its memory."""

    def column(direction: Array) -> Array:
        return jax.jvp(jax.grad(function), (theta,), (direction,))[1]

    hessian = jax.lax.map(column, jnp.eye(theta.size), batch_size=TANGENTS)
    return (hessian + hessian.T) / 2
