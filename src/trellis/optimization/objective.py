"""Defines `Objective`, which gives a step ∇L, F·v, and gain and KL at a new θ (Sec. 6).

Every result is a sum or a maximum over states, with the total weight beside it. So the step does
not know where the data is:

- `LocalObjective` computes the results from chunks of states in this process.
- `DistributedObjective` adds up the results of several parts, here or on other machines.
- `DeviceObjective` adds up the results of all devices of one compiled program.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from trellis.arrays import Array
from trellis.estimation.state_batch import Chunks
from trellis.estimation.surrogate import (
    Estimator,
    EvaluationSums,
    GradientSums,
    gradient_and_outputs,
    max_quadratic_kl,
    sum_evaluation,
)
from trellis.optimization.fisher import RESIDUAL_BUDGET_BYTES, fisher_operator
from trellis.optimization.rules import Curvature
from trellis.policies.policy import Policy

Answer = TypeVar("Answer")


class AskAll(Protocol):
    """Function that asks the objectives of all parts of the data the same question."""

    def __call__(self, question: Callable[["Objective"], Answer], /) -> Answer:
        """Return the merged answer of all parts."""
        ...


class Start(NamedTuple):
    """Quantities at θ_old that a step starts from."""

    sums: GradientSums
    """L and ∇L at θ_old, as sums over states."""
    fisher_weight: Array
    """Total weight of the states that F is computed on."""


class Maximum(NamedTuple):
    """Largest of some numbers; NaN if any of them is NaN."""

    value: Array
    """The largest number."""

    def merge(self, other: "Maximum") -> "Maximum":
        """Return the larger of the two."""
        return Maximum(np.maximum(self.value, other.value))


class Objective(Protocol):
    """Interface of the data to a step; each method returns a sum or a maximum over states."""

    def start(self) -> Start:
        """Return L and ∇L at θ_old, with the total weights."""
        ...

    def fisher_product(self, v: Array) -> Array:
        """Return Σ weight·F_n v over the states that F is computed on."""
        ...

    def max_quadratic_kl(self, direction: Array) -> Maximum:
        """Return the largest ½dᵀF_n d of any state n."""
        ...

    def evaluate(self, direction: Array, multiple: Array) -> EvaluationSums:
        """Return how θ_old + multiple·direction compares with θ_old."""
        ...


class LocalObjective:
    """Objective over chunks of states in this process.

    Args:
        policy: The policy.
        estimator: How the actions of a state are weighted.
        curvature: Curvature of the update rule.
        theta: θ_old.
        chunks: The states.
        fisher_chunks: The states that F is computed on.
        entropy_bonus: Coefficient of the entropy in L.
        one_program: Whether the objective is used inside one compiled step, which keeps the
            linearizations for all products with F. Otherwise each method is a compiled program.
        residual_budget: Largest size in bytes of these linearizations.
    """

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        curvature: Curvature,
        theta: Array,
        chunks: Chunks,
        fisher_chunks: Chunks,
        *,
        entropy_bonus: float = 0.0,
        one_program: bool = False,
        residual_budget: int = RESIDUAL_BUDGET_BYTES,
    ):
        self._policy, self._estimator, self._theta = policy, estimator, theta
        self._fisher_weights = fisher_chunks.batch.kl_weight
        if one_program:
            # Both hold the same frames. As one argument of the program they are stored once.
            fisher_chunks = fisher_chunks._replace(frames=chunks.frames)
        else:
            chunks, fisher_chunks = jax.device_put((chunks, fisher_chunks))
        self._chunks = chunks
        self._entropy_bonus = entropy_bonus
        self._sums, self._outputs = _gradient(policy, estimator, theta, chunks, entropy_bonus)
        if one_program and curvature is not Curvature.IDENTITY:
            self._fisher = fisher_operator(
                policy, curvature, theta, fisher_chunks, residual_budget=residual_budget
            )
        else:
            self._fisher = functools.partial(
                _fisher_product, policy, curvature, theta, fisher_chunks
            )

    def start(self) -> Start:
        """Return L and ∇L at θ_old, with the total weights."""
        return Start(self._sums, self._fisher_weights.sum())

    def fisher_product(self, v: Array) -> Array:
        """Return Σ weight·F_n v over the states that F is computed on."""
        return self._fisher(v)

    def max_quadratic_kl(self, direction: Array) -> Maximum:
        """Return the largest ½dᵀF_n d of any state n."""
        return Maximum(_max_quadratic_kl(self._policy, self._theta, direction, self._chunks))

    def evaluate(self, direction: Array, multiple: Array) -> EvaluationSums:
        """Return how θ_old + multiple·direction compares with θ_old."""
        # Outside of a compiled program, NumPy computes this product and this sum. A compiler may
        # fuse them into one operation that rounds once, and then θ differs from the step's θ.
        new = self._theta + multiple * direction
        return _evaluate(
            self._policy,
            self._estimator,
            self._theta,
            new,
            self._chunks,
            self._outputs,
            self._entropy_bonus,
        )


class DistributedObjective:
    """Objective over several parts of the data, in this process or on other machines.

    Args:
        ask_all: Function that asks all parts and merges their answers.
    """

    def __init__(self, ask_all: AskAll):
        self._ask_all = ask_all

    def start(self) -> Start:
        """Return L and ∇L at θ_old, with the total weights."""
        return self._ask_all(lambda part: part.start())

    def fisher_product(self, v: Array) -> Array:
        """Return Σ weight·F_n v over the states that F is computed on."""
        v = np.asarray(v)
        return self._ask_all(lambda part: part.fisher_product(v))

    def max_quadratic_kl(self, direction: Array) -> Maximum:
        """Return the largest ½dᵀF_n d of any state n."""
        direction = np.asarray(direction)
        return self._ask_all(lambda part: part.max_quadratic_kl(direction))

    def evaluate(self, direction: Array, multiple: Array) -> EvaluationSums:
        """Return how θ_old + multiple·direction compares with θ_old."""
        direction, multiple = np.asarray(direction), np.asarray(multiple)
        return self._ask_all(lambda part: part.evaluate(direction, multiple))


class DeviceObjective:
    """Objective over the data of all devices, or of all rows of a `vmap`, in one program.

    Args:
        part: Objective over this device's data.
        axes: Names of the axes to sum over.
    """

    def __init__(self, part: Objective, axes: tuple[str, ...]):
        self._part, self._axes = part, axes

    def start(self) -> Start:
        """Return L and ∇L at θ_old, with the total weights."""
        return jax.lax.psum(self._part.start(), self._axes)

    def fisher_product(self, v: Array) -> Array:
        """Return Σ weight·F_n v over the states that F is computed on."""
        return jax.lax.psum(self._part.fisher_product(v), self._axes)

    def max_quadratic_kl(self, direction: Array) -> Maximum:
        """Return the largest ½dᵀF_n d of any state n."""
        return jax.lax.pmax(self._part.max_quadratic_kl(direction), self._axes)

    def evaluate(self, direction: Array, multiple: Array) -> EvaluationSums:
        """Return how θ_old + multiple·direction compares with θ_old."""
        found = self._part.evaluate(direction, multiple)
        gain, kl = jax.lax.psum((found.gain, found.kl), self._axes)
        return EvaluationSums(gain, kl, jax.lax.pmax(found.max_kl, self._axes))


_gradient = jax.jit(gradient_and_outputs, static_argnums=(0, 1, 4))
_evaluate = jax.jit(sum_evaluation, static_argnums=(0, 1, 6))
_max_quadratic_kl = jax.jit(max_quadratic_kl, static_argnums=0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fisher_product(
    policy: Policy, curvature: Curvature, theta: Array, chunks: Chunks, v: Array
) -> Array:
    return fisher_operator(policy, curvature, theta, chunks)(v)
