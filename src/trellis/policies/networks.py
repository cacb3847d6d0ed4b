"""Networks (App. D): pure functions of (weights, observation).

A network is a description: it names the shapes of its weights, makes initial ones, and computes
outputs from weights and observations. It holds no weights itself. The same code runs on NumPy
arrays (inference beside the simulator) and on JAX arrays (everything that learns).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from trellis.arrays import Array


class Network(Protocol):
    """What a policy or a critic asks of its network; hashable, since it is fixed when compiling."""

    @property
    def num_outputs(self) -> int: ...

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights, in the order in which `apply` takes them."""
        ...

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state, which sets the size of chunks."""
        ...

    def init(self, rng: np.random.Generator) -> list[np.ndarray]: ...
    def apply(self, weights: Sequence[Array], observation: Any) -> Array: ...


@dataclass(frozen=True)
class MLP:
    """Dense layers with tanh between them; no hidden layers make it linear.

    The paper's swimmer network, 10 → 30 → 2 with 364 policy parameters, has no hidden biases:
    10·30 + 30·2 + 2, and 2 log stds.
    """

    inputs: int
    """Number of features."""
    hidden: tuple[int, ...]
    """Units of the hidden layers."""
    num_outputs: int
    """Units of the last layer."""
    hidden_biases: bool = True
    """Whether hidden layers have biases; the last layer always does."""
    output_scale: float = 0.01
    """Gain of the last layer: small, so that the first policy hardly depends on the state."""

    def __post_init__(self):
        if min(self._sizes) < 1:
            raise ValueError(
                f"every layer needs at least one unit, got {self.inputs} inputs,"
                f" {self.hidden} hidden, {self.num_outputs} outputs"
            )

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.num_outputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """(in, out) matrices, each followed by its bias if it has one."""
        shapes: list[tuple[int, ...]] = []
        *hidden, last = pairwise(self._sizes)
        for rows, columns in hidden:
            shapes += [(rows, columns), (columns,)] if self.hidden_biases else [(rows, columns)]
        return (*shapes, last, last[1:])

    @property
    def values_per_state(self) -> int:
        """Units of all layers."""
        return sum(self._sizes)

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return orthogonal matrices and zero biases."""
        *hidden, last, bias = self.shapes
        weights = [
            math.sqrt(2.0) * orthogonal(rng, *shape) if len(shape) > 1 else np.zeros(shape)
            for shape in hidden
        ]
        return [*weights, self.output_scale * orthogonal(rng, *last), np.zeros(bias)]

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """(..., inputs) -> (..., outputs)."""
        *hidden, last, bias = weights
        x, remaining = observation, iter(hidden)
        for matrix in remaining:
            x = x @ matrix
            if self.hidden_biases:
                x = x + next(remaining)
            x = x.__array_namespace__().tanh(x)
        return x @ last + bias


def unflatten(network: Network, vector: Array) -> tuple[list[Array], Array]:
    """Return the weights of `network` from the beginning of a flat vector, and the rest of it.

    Leading axes of `vector`, such as one of members of a population, stay.
    """
    weights, start = [], 0
    for shape in network.shapes:
        stop = start + math.prod(shape)
        weights.append(vector[..., start:stop].reshape(*vector.shape[:-1], *shape))
        start = stop
    return weights, vector[..., start:]


def num_weights(network: Network) -> int:
    """Return the number of weights."""
    return sum(math.prod(shape) for shape in network.shapes)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return a uniformly random matrix with orthonormal rows or columns, whichever are fewer."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))  # makes the factorization unique, and so q uniform
    return q if rows >= columns else q.T
