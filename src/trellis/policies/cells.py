"""Defines the cells of policies with memory: GRU and LSTM (Cho et al. 2014; Hochreiter 1997).

A cell maps its input and a carry to the next carry. The part of a step that depends on the input
alone, `project`, can be computed for all times together; `advance` does the rest, one time after
the other. The same code runs on NumPy arrays beside the simulator and on JAX arrays.

The gates that keep the memory start with biases log u, u uniform in [1, `span`], so that the units
forget at different speeds, the slowest over that many steps (Tallec & Ollivier 2018). A large span
remembers a sign for long; a small one follows what changes quickly, such as velocities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from trellis.arrays import Array
from trellis.policies.networks import orthogonal

SPAN = 32.0
"""Default number of steps over which the slowest unit forgets at first."""


class Cell(Protocol):
    """Interface of a recurrent cell; a hashable description without weights of its own."""

    @property
    def units(self) -> int:
        """Number of units: values that the next layer sees."""
        ...

    @property
    def carry_size(self) -> int:
        """Number of values of the carry."""
        ...

    def shapes(self, inputs: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the weights: of the input, of the memory, and the bias."""
        ...

    def init(self, rng: np.random.Generator, inputs: int) -> list[np.ndarray]:
        """Return initial weights."""
        ...

    def advance(self, weights: Sequence[Array], projected: Array, carry: Array) -> Array:
        """Return the next carry from a projected input and the carry."""
        ...

    def visible(self, carry: Array) -> Array:
        """Return the part of a carry that the next layer sees, (..., units)."""
        ...


def project(weights: Sequence[Array], inputs: Array) -> Array:
    """Return the part of all gates that depends on the inputs alone, (..., gates · units)."""
    return inputs @ weights[0] + weights[2]


@dataclass(frozen=True)
class GRU:
    """Gated recurrent unit; its carry is what the next layer sees.

        z = σ(W_z x + U_z h + b_z)         how much of the memory stays
        r = σ(W_r x + U_r h + b_r)         how much of it the candidate sees
        n = tanh(W_n x + r ∘ U_n h + b_n)  candidate
        h' = z ∘ h + (1 − z) ∘ n

    Example:
        >>> GRU(64).carry_size
        64
    """

    units: int
    """Number of units."""
    span: float = field(default=SPAN, compare=False, repr=False)
    """Number of steps over which the slowest unit forgets at first. It sets initial weights."""

    @property
    def carry_size(self) -> int:
        """Number of values of the carry: one per unit."""
        return self.units

    def shapes(self, inputs: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of W, U and b, with the gates z, r and n side by side."""
        return (inputs, 3 * self.units), (self.units, 3 * self.units), (3 * self.units,)

    def init(self, rng: np.random.Generator, inputs: int) -> list[np.ndarray]:
        """Return initial weights: orthogonal matrices per gate, and biases that keep the memory."""
        bias = np.zeros((3, self.units))
        bias[0] = _keeping_bias(rng, self.units, self.span)
        return [*_matrices(rng, inputs, self.units, 3), bias.ravel()]

    def advance(self, weights: Sequence[Array], projected: Array, carry: Array) -> Array:
        """Return h' from the projected input and h."""
        units = self.units
        remembered = carry @ weights[1]
        gates = _sigmoid(projected[..., : 2 * units] + remembered[..., : 2 * units])
        keep, reset = gates[..., :units], gates[..., units:]
        candidate = projected[..., 2 * units :] + reset * remembered[..., 2 * units :]
        candidate = candidate.__array_namespace__().tanh(candidate)
        return candidate + keep * (carry - candidate)

    def visible(self, carry: Array) -> Array:
        """Return h, which the next layer sees."""
        return carry


@dataclass(frozen=True)
class LSTM:
    """Long short-term memory; its carry is (h, c), of which the next layer sees h.

        i, f, o = σ(W x + U h + b)   input, forget and output gates
        g = tanh(W_g x + U_g h + b_g)
        c' = f ∘ c + i ∘ g
        h' = o ∘ tanh(c')

    Example:
        >>> LSTM(64).carry_size
        128
    """

    units: int
    """Number of units."""
    span: float = field(default=SPAN, compare=False, repr=False)
    """Number of steps over which the slowest unit forgets at first. It sets initial weights."""

    @property
    def carry_size(self) -> int:
        """Number of values of the carry: two per unit."""
        return 2 * self.units

    def shapes(self, inputs: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of W, U and b, with the gates i, f, o and g side by side."""
        return (inputs, 4 * self.units), (self.units, 4 * self.units), (4 * self.units,)

    def init(self, rng: np.random.Generator, inputs: int) -> list[np.ndarray]:
        """Return initial weights: orthogonal matrices per gate, and biases that keep the memory."""
        bias = np.zeros((4, self.units))
        bias[1] = _keeping_bias(rng, self.units, self.span)
        bias[0] = -bias[1]
        return [*_matrices(rng, inputs, self.units, 4), bias.ravel()]

    def advance(self, weights: Sequence[Array], projected: Array, carry: Array) -> Array:
        """Return (h', c') from the projected input and (h, c)."""
        units, xp = self.units, carry.__array_namespace__()
        total = projected + carry[..., :units] @ weights[1]
        gates, candidate = _sigmoid(total[..., : 3 * units]), xp.tanh(total[..., 3 * units :])
        cell = gates[..., units : 2 * units] * carry[..., units:] + gates[..., :units] * candidate
        return xp.concatenate([gates[..., 2 * units :] * xp.tanh(cell), cell], axis=-1)

    def visible(self, carry: Array) -> Array:
        """Return h, which the next layer sees."""
        return carry[..., : self.units]


def _matrices(
    rng: np.random.Generator, inputs: int, units: int, gates: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return orthogonal matrices of the input and of the memory, gates side by side."""
    of_input, of_memory = (
        np.concatenate([orthogonal(rng, rows, units) for _ in range(gates)], axis=1)
        for rows in (inputs, units)
    )
    return of_input, of_memory


def _keeping_bias(rng: np.random.Generator, units: int, span: float) -> np.ndarray:
    return np.log(rng.uniform(1.0, span, units))


def _sigmoid(x: Array) -> Array:
    """Return 1/(1 + e⁻ˣ) without overflow."""
    return 0.5 * (1.0 + x.__array_namespace__().tanh(0.5 * x))


CELLS: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}
"""Cells by the name that `policy.memory` gives them."""
