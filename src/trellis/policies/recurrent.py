"""Implements networks with memory: an encoder, a recurrent cell and a linear layer.

    x = tanh(encoder(observation))    carry' = cell(x, carry)    outputs = h(carry') V + b

`step` computes one time step, for samplers and for people who use a policy. `apply` computes whole
sequences, for everything that learns: encoder, projection of the inputs and last layer for all
states together, and the cell by `lax.scan`. Derivatives go through the scan, so L, KL and JᵀMJ
account for what the policy remembers (backpropagation through time, from the start of a sequence).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.cells import Cell, project
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import Network, orthogonal
from trellis.policies.sequences import Sequences
from trellis.policies.several import SeveralNetwork

PICTURES_AT_ONCE = 64
"""Number of pictures that the encoder computes together, so that memory stays bounded."""


@dataclass(frozen=True)
class NoEncoder:
    """Encoder without layers: the cell sees the observation itself."""

    inputs: int
    """Number of features of an observation."""

    @property
    def num_outputs(self) -> int:
        """Number of outputs per observation: its features."""
        return self.inputs

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: there are none."""
        return ()

    @property
    def values_per_state(self) -> int:
        """Number of features."""
        return self.inputs

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return no weights."""
        del rng
        return []

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """Return the observation."""
        del weights
        return observation


@dataclass(frozen=True)
class RecurrentNet:
    """Network with memory.

    Example:
        >>> from trellis.policies import GRU, MLP
        >>> network = RecurrentNet(MLP(3, (), 8, output_scale=1.0), GRU(4), num_outputs=2)
        >>> weights = network.init(np.random.default_rng(0))
        >>> outputs, carry = network.step(weights, np.zeros((5, 3)), np.zeros((5, 4)))
        >>> outputs.shape, carry.shape
        ((5, 2), (5, 4))
    """

    encoder: Network
    """Network in front of the memory; tanh follows it, if it has layers."""
    cell: Cell
    """Recurrent cell that keeps the memory."""
    num_outputs: int
    """Units of the last layer."""
    output_scale: float = 0.01
    """Gain of the last layer's initial weights."""

    @property
    def carry_size(self) -> int:
        """Number of values of the carry of one environment."""
        return self.cell.carry_size

    @property
    def inputs(self) -> Any:
        """Inputs of the encoder."""
        return getattr(self.encoder, "inputs", None)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: encoder, cell (input, memory, bias), last layer."""
        units, outputs = self.cell.units, self.num_outputs
        cell = self.cell.shapes(self.encoder.num_outputs)
        return (*self.encoder.shapes, *cell, (units, outputs), (outputs,))

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state; used to pick a chunk size."""
        gates = self.cell.shapes(1)[-1][0]
        cell = 2 * gates + 2 * self.carry_size + self.num_outputs
        if self._sees_pictures:  # The encoder's activations are computed again when needed.
            return self.encoder.num_outputs + cell
        return self.encoder.values_per_state + cell

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights: orthogonal matrices, and biases that keep the memory."""
        encoder = self.encoder.init(rng)
        cell = self.cell.init(rng, self.encoder.num_outputs)
        last = self.output_scale * orthogonal(rng, self.cell.units, self.num_outputs)
        return [*encoder, *cell, last, np.zeros(self.num_outputs)]

    def step(self, weights: Sequence[Array], observation: Any, carry: Array) -> tuple[Array, Array]:
        """Return the outputs for a batch of observations, and the carry for the next step.

        Args:
            weights: Weights in the order of `shapes`.
            observation: One observation per environment.
            carry: Carry before the step, (..., `carry_size`); zeros where an episode starts.
        """
        encoder, cell, last, bias = self._split(weights)
        features = self._activate(self.encoder.apply(encoder, observation))
        carry = self.cell.advance(cell, project(cell, features), carry)
        return self.cell.visible(carry) @ last + bias, carry

    def apply(self, weights: Sequence[Array], observation: Sequences) -> Array:
        """Return the outputs (state, num_outputs) for the states of whole sequences."""
        import jax  # Here, because acting needs NumPy only.

        encoder, cell, last, bias = self._split(list(map(jax.numpy.asarray, weights)))
        features = self._activate(self._encode(encoder, observation.observation))
        sequences, length = len(observation.carry), len(features) // len(observation.carry)

        def by_time(values: Array) -> Array:
            return values.reshape(sequences, length, *values.shape[1:]).swapaxes(0, 1)

        def advance(carry: Array, at_time: tuple[Array, Array]) -> tuple[Array, Array]:
            projected, keeps = at_time
            carry = self.cell.advance(cell, projected, carry * keeps)
            return carry, self.cell.visible(carry)

        projected = project(cell, features)
        keeps = 1 - jax.numpy.asarray(observation.starts, projected.dtype)[:, None]
        start = jax.numpy.asarray(observation.carry, projected.dtype)
        _, hidden = jax.lax.scan(advance, start, (by_time(projected), by_time(keeps)))
        return hidden.swapaxes(0, 1).reshape(len(features), -1) @ last + bias

    def _encode(self, weights: Sequence[Array], observation: Any) -> Array:
        """Return the encoder's outputs; those of pictures a few at a time, without activations."""
        if not self._sees_pictures:
            return self.encoder.apply(weights, observation)
        import jax

        def encode(state: Any) -> Array:
            return self.encoder.apply(weights, jax.tree.map(lambda part: part[None], state))[0]

        states = len(jax.tree.leaves(observation)[0])
        batch_size = min(PICTURES_AT_ONCE, states)
        return jax.lax.map(jax.checkpoint(encode), observation, batch_size=batch_size)

    @property
    def _sees_pictures(self) -> bool:
        encoder = self.encoder
        several = isinstance(encoder, SeveralNetwork) and bool(encoder.pictures)
        return isinstance(encoder, ConvNet) or several

    def _activate(self, outputs: Array) -> Array:
        return outputs.__array_namespace__().tanh(outputs) if self.encoder.shapes else outputs

    def _split(self, weights: Sequence[Array]) -> tuple[Any, Any, Array, Array]:
        """Return the weights of the encoder, of the cell, and of the last layer."""
        *inner, last, bias = weights
        count = len(self.encoder.shapes)
        return inner[:count], inner[count:], last, bias
