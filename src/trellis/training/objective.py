"""The questions of a step (Sec. 6, App. C) when the data lies with several shards.

`ShardObjective` answers one shard's share, in sums and maxima, each question a compiled program of
its own. `TeamObjective` is what the step sees: it asks all shards, in one message each, and divides
the sums. Conjugate gradient and line search are those of the step on one machine.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from trellis.estimation.advantages import Spread
from trellis.estimation.surrogate import (
    Chunks,
    Estimator,
    EvaluationSums,
    GradientSums,
    gradient_and_outputs,
    max_quadratic_kl,
    sum_evaluation,
)
from trellis.optimization.fisher import fisher_operator
from trellis.optimization.rules import Curvature
from trellis.optimization.step import Evaluation
from trellis.policies.policy import Policy
from trellis.training.reduction import Maximum

Array = Any  # a NumPy or a JAX array


class Gradient(NamedTuple):
    """Σ weight·L_n and its gradient, and the total weights, at θ_old."""

    surrogate: Array
    gradient: Array
    surrogate_weight: Array
    kl_weight: Array
    fisher_weight: Array
    """Of the states that F is computed on."""


class Evaluated(NamedTuple):
    """Σ weight·(L_n(θ) − L_n(θ_old)), Σ weight·KL_n, max KL_n, at some θ."""

    gain: Array
    kl: Array
    max_kl: Maximum


class ShardObjective:
    """The shares of one shard, at a fixed θ_old."""

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        curvature: Curvature,
        theta: np.ndarray,
        chunks: tuple[Chunks, Chunks],
    ):
        self._policy, self._estimator, self._curvature = policy, estimator, curvature
        self._theta = theta
        self._chunks, self._fisher_chunks = jax.device_put(chunks)
        self._direction = np.zeros_like(theta)
        self._sums, self._outputs = _gradient(policy, estimator, theta, self._chunks)

    def gradient(self) -> Gradient:
        """L and ∇L at θ_old."""
        fisher_weight = np.asarray(self._fisher_chunks.batch.kl_weight).sum()
        sums = GradientSums(*map(np.asarray, self._sums))
        return Gradient(*sums, fisher_weight)

    def fisher_product(self, v: np.ndarray) -> np.ndarray:
        """Σ weight·F_n v over the shard's subset of the data."""
        product = _fisher_product(
            self._policy, self._curvature, self._theta, self._fisher_chunks, v
        )
        return np.asarray(product)

    def aim(self, direction: np.ndarray) -> None:
        """The direction that the questions from now on are about."""
        self._direction = direction

    def max_quadratic_kl(self) -> Maximum:
        """The largest ½dᵀF_s d over states s."""
        largest = _max_quadratic_kl(self._policy, self._theta, self._direction, self._chunks)
        return Maximum(np.asarray(largest))

    def evaluate(self, multiple: np.ndarray) -> Evaluated:
        """At θ_old + multiple·direction."""
        # By NumPy, as a product and a sum: a compiler may make them one operation that rounds once,
        # and then this would not be the θ that the step returns.
        new = self._theta + multiple * self._direction
        sums = _evaluate(
            self._policy, self._estimator, self._theta, new, self._chunks, self._outputs
        )
        return Evaluated(np.asarray(sums.gain), np.asarray(sums.kl), Maximum(np.asarray(sums[2])))


class TeamObjective:
    """What a step asks (`trust_region.Objective`), by way of `ask(question, *arguments)`; `spread`
    is that of the values of all shards."""

    def __init__(self, ask: Callable[..., Any], spread: Spread):
        self._ask, self._spread = ask, spread
        self._aimed: Array = None

    def gradient(self) -> tuple[Array, Array]:
        """L(θ_old) and ∇L(θ_old)."""
        self._sums: Gradient = self._ask("gradient", self._spread)
        weight = self._sums.surrogate_weight
        return self._sums.surrogate / weight, self._sums.gradient / weight

    def fisher_product(self, v: Array) -> Array:
        """F v, on the shards' subsets of the data."""
        return self._ask("fisher_product", np.asarray(v)) / self._sums.fisher_weight

    def max_quadratic_kl(self, direction: Array) -> Array:
        """The largest ½dᵀF_s d over states s."""
        self._aim(direction)
        return self._ask("max_quadratic_kl").value

    def evaluate(self, direction: Array, multiple: Array) -> Evaluation:
        """L(θ) − L(θ_old), mean KL and max KL at θ = θ_old + multiple·direction."""
        self._aim(direction)
        sums: Evaluated = self._ask("evaluate", np.asarray(multiple))
        return Evaluation(
            sums.gain / self._sums.surrogate_weight,
            sums.kl / self._sums.kl_weight,
            sums.max_kl.value,
        )

    def _aim(self, direction: Array) -> None:
        if direction is not self._aimed:
            self._ask("aim", np.asarray(direction))
            self._aimed = direction


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gradient(
    policy: Policy, estimator: Estimator, theta: Array, chunks: Chunks
) -> tuple[GradientSums, Array]:
    return gradient_and_outputs(policy, estimator, theta, chunks)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fisher_product(
    policy: Policy, curvature: Curvature, theta: Array, chunks: Chunks, v: Array
) -> Array:
    return fisher_operator(policy, curvature, theta, chunks)(v)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate(
    policy: Policy, estimator: Estimator, old: Array, new: Array, chunks: Chunks, outputs: Array
) -> EvaluationSums:
    return sum_evaluation(policy, estimator, old, new, chunks, outputs)


@functools.partial(jax.jit, static_argnums=0)
def _max_quadratic_kl(policy: Policy, theta: Array, direction: Array, chunks: Chunks) -> Array:
    return max_quadratic_kl(policy, theta, direction, chunks)
