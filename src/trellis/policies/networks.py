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

Array = Any  # a NumPy or a JAX array


class Network(Protocol):
    """What a policy or a critic asks of its network; hashable, since it is fixed when compiling."""

    @property
    def num_outputs(self) -> int: ...

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the weights, in the order in which `apply` takes them."""
        ...

    @property
    def values_per_state(self) -> int:
        """About how many numbers are made on the way to one state's outputs: of so many states that
        these stay in a cache, derivatives are taken together."""
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
    hidden: tuple[int, ...]
    outputs: int
    hidden_biases: bool = True
    output_biases: bool = True
    hidden_scale: float = math.sqrt(2.0)
    """Gain of the orthogonal initialization of hidden layers."""
    output_scale: float = 0.01
    """Gain of the last layer: small, so that the first policy hardly depends on the state."""

    def __post_init__(self):
        if min((self.inputs, *self.hidden, self.outputs)) < 1:
            raise ValueError(
                f"every layer needs at least one unit, got {self.inputs} inputs,"
                f" {self.hidden} hidden, {self.outputs} outputs"
            )

    @property
    def num_outputs(self) -> int:
        """Units of the last layer."""
        return self.outputs

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """(in, out) matrices, each followed by its bias if it has one."""
        shapes: list[tuple[int, ...]] = []
        for (rows, columns), has_bias in self._layers():
            shapes.append((rows, columns))
            if has_bias:
                shapes.append((columns,))
        return tuple(shapes)

    @property
    def values_per_state(self) -> int:
        """Units of all layers."""
        return sum((self.inputs, *self.hidden, self.outputs))

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Orthogonal matrices, zero biases."""
        weights: list[np.ndarray] = []
        layers = self._layers()
        for index, ((rows, columns), has_bias) in enumerate(layers):
            scale = self.output_scale if index == len(layers) - 1 else self.hidden_scale
            weights.append(scale * orthogonal(rng, rows, columns))
            if has_bias:
                weights.append(np.zeros(columns))
        return weights

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """(..., inputs) -> (..., outputs)."""
        layers = self._layers()
        remaining = iter(weights)
        x = observation
        for index, (_, has_bias) in enumerate(layers):
            x = x @ next(remaining)
            if has_bias:
                x = x + next(remaining)
            if index < len(layers) - 1:
                x = x.__array_namespace__().tanh(x)
        return x

    def _layers(self) -> list[tuple[tuple[int, int], bool]]:
        sizes = list(pairwise((self.inputs, *self.hidden, self.outputs)))
        return [
            (size, self.output_biases if index == len(sizes) - 1 else self.hidden_biases)
            for index, size in enumerate(sizes)
        ]


def linear(inputs: int, outputs: int, *, biases: bool = True) -> MLP:
    """A linear map, such as the paper's cart-pole policy: 4 weights, a bias (and a log std)."""
    return MLP(inputs, (), outputs, output_biases=biases)


def unflatten(network: Network, vector: Array) -> tuple[list[Array], Array]:
    """The weights of `network` from the beginning of a flat vector, and what is left of it."""
    weights, start = [], 0
    for shape in network.shapes:
        stop = start + math.prod(shape)
        weights.append(vector[start:stop].reshape(shape))
        start = stop
    return weights, vector[start:]


def num_weights(network: Network) -> int:
    """How many numbers all its weights are."""
    return sum(math.prod(shape) for shape in network.shapes)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """A random matrix with orthonormal rows or columns, whichever are fewer, uniformly drawn."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))  # makes the factorization unique, and so q uniform
    return q if rows >= columns else q.T
