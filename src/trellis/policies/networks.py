"""Defines networks as pure functions of (weights, observation) (App. D).

A network is a description without weights of its own. It names the shapes of its weights, creates
initial weights, and computes outputs from weights and observations. The same code runs on NumPy
arrays beside the simulator and on JAX arrays in everything that learns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from trellis.arrays import Array


class Network(Protocol):
    """Interface that the network of a policy or a critic implements.

    A network must be hashable, because it is a static argument of compiled functions. A frozen
    dataclass is.
    """

    @property
    def num_outputs(self) -> int:
        """Number of outputs per observation."""
        ...

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights, in the order in which `apply` expects them."""
        ...

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state; used to pick a chunk size."""
        ...

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights with the shapes of `shapes`."""
        ...

    def apply(self, weights: Sequence[Array], observation: Any) -> Array:
        """Return the outputs (..., num_outputs) for a batch of observations.

        The function must run both on NumPy and on JAX arrays.
        """
        ...


class Recurrent(Network, Protocol):
    """Interface of a network with memory: its `apply` takes `Sequences`, its `step` one time step.

    Any network with a `carry_size` above 0 is one.
    """

    @property
    def carry_size(self) -> int:
        """Number of values of the carry of one environment."""
        ...

    def step(self, weights: Sequence[Array], observation: Any, carry: Array) -> tuple[Array, Array]:
        """Return the outputs for a batch of observations, and the carry for the next step."""
        ...


@dataclass(frozen=True)
class MLP:
    """Multilayer perceptron: dense layers with tanh between them, (..., inputs) to (..., outputs).

    Without hidden layers the network is linear. The paper's swimmer network, 10 → 30 → 2, has no
    hidden biases: 10·30 + 30·2 + 2 weights and 2 log stds are its 364 parameters.

    Example:
        >>> num_weights(MLP(inputs=10, hidden=(30,), num_outputs=2, hidden_biases=False))
        362
    """

    inputs: int
    """Number of features of an observation."""
    hidden: tuple[int, ...]
    """Units of the hidden layers; () for a linear network."""
    num_outputs: int
    """Units of the last layer."""
    hidden_biases: bool = True
    """Whether hidden layers have biases; the last layer always has one."""
    output_scale: float = 0.01
    """Gain of the last layer's initial weights. A small gain makes the first policy nearly the
    same in all states."""

    def __post_init__(self):
        if min(self._sizes) < 1:
            raise ValueError(
                f"every layer must have at least one unit, got inputs={self.inputs},"
                f" hidden={self.hidden}, num_outputs={self.num_outputs}"
            )

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.inputs, *self.hidden, self.num_outputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: (in, out) matrices, each followed by its bias if it has one."""
        shapes: list[tuple[int, ...]] = []
        *hidden, last = pairwise(self._sizes)
        for rows, columns in hidden:
            shapes += [(rows, columns), (columns,)] if self.hidden_biases else [(rows, columns)]
        return (*shapes, last, last[1:])

    @property
    def values_per_state(self) -> int:
        """Number of units of all layers, inputs included."""
        return sum(self._sizes)

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights: orthogonal matrices and zero biases."""
        *hidden, last, bias = self.shapes
        weights = [
            math.sqrt(2.0) * orthogonal(rng, *shape) if len(shape) > 1 else np.zeros(shape)
            for shape in hidden
        ]
        return [*weights, self.output_scale * orthogonal(rng, *last), np.zeros(bias)]

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """Return the outputs (..., num_outputs) for observations (..., inputs)."""
        *hidden, last, bias = weights
        if isinstance(observation, np.ndarray) and isinstance(last, np.ndarray) and bias.ndim == 1:
            return self._apply_in_place(hidden, last, bias, observation)
        x, remaining = observation, iter(hidden)
        for matrix in remaining:
            x = x @ matrix
            if self.hidden_biases:
                x = x + next(remaining)
            x = x.__array_namespace__().tanh(x)
        return x @ last + bias

    def _apply_in_place(
        self, hidden: Sequence[Array], last: Array, bias: Array, x: np.ndarray
    ) -> np.ndarray:
        """Return the same bits as `apply` with fewer arrays, between two steps of a simulator."""
        remaining = iter(hidden)
        for matrix in remaining:
            x = x @ matrix
            if self.hidden_biases:
                x += next(remaining)
            np.tanh(x, out=x)
        x = x @ last
        x += bias
        return x


def unflatten(network: Network, vector: Array) -> tuple[list[Array], Array]:
    """Return the weights of `network` from the start of a flat vector, and the rest of the vector.

    Leading axes of `vector`, for example one for the members of a population, are kept.
    """
    weights, start = [], 0
    for shape in network.shapes:
        stop = start + math.prod(shape)
        weights.append(vector[..., start:stop].reshape(*vector.shape[:-1], *shape))
        start = stop
    return weights, vector[..., start:]


def num_weights(network: Network) -> int:
    """Return the total number of weights of a network."""
    return sum(math.prod(shape) for shape in network.shapes)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Return a random matrix with orthonormal rows or columns, whichever are fewer.

    The matrix is uniformly distributed over all such matrices.
    """
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diagonal(r))  # makes the factorization unique and q uniform
    return q if rows >= columns else q.T
