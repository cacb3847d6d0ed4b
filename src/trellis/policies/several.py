"""Defines the network for several inputs: an encoder for each, joined by dense layers.

    camera ──── convolutions ──┐
    depth  ──── convolutions ──┼── dense layers ── outputs
    joints ──── dense layer  ──┘

An encoder is a network of its own: `ConvNet` for pictures, `MLP` for vectors, or a user's class.
Its outputs go through tanh before they are joined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trellis.arrays import Array
from trellis.inputs import Inputs
from trellis.policies.networks import MLP, Network


@dataclass(frozen=True)
class VectorEncoder:
    """Encoder of some columns of the rows of numbers."""

    start: int
    """Index of the first column."""
    stop: int
    """Column after the last one."""
    network: Network
    """Network from these columns to features."""


@dataclass(frozen=True)
class SeveralNetwork:
    """Network for `Inputs`: encoders of pictures and of columns, joined by dense layers.

    Without pictures the observations are plain rows.

    Example:
        >>> rows = VectorEncoder(0, 4, MLP(4, (), 8))
        >>> network = SeveralNetwork((), (rows,), MLP(8, (), 2))
        >>> weights = network.init(np.random.default_rng(0))
        >>> network.apply(weights, np.zeros((5, 4))).shape
        (5, 2)
    """

    pictures: tuple[Network, ...]
    """Encoder of each picture, in order."""
    vectors: tuple[VectorEncoder, ...]
    """Encoders of the other features."""
    trunk: MLP
    """Dense layers from the joined features to the outputs."""

    def __post_init__(self):
        joined = sum(network.num_outputs for network in self.encoders)
        if self.trunk.inputs != joined:
            raise ValueError(
                f"the dense layers must have {joined} inputs, the outputs of all encoders, got"
                f" {self.trunk.inputs}"
            )

    @property
    def encoders(self) -> tuple[Network, ...]:
        """Encoders of pictures, then of vectors."""
        return (*self.pictures, *(vector.network for vector in self.vectors))

    @property
    def num_outputs(self) -> int:
        """Number of outputs per observation."""
        return self.trunk.num_outputs

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: those of each encoder, then of the dense layers."""
        networks = (*self.encoders, self.trunk)
        return tuple(shape for network in networks for shape in network.shapes)

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state."""
        return sum(network.values_per_state for network in (*self.encoders, self.trunk))

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights of all parts."""
        networks = (*self.encoders, self.trunk)
        return [weight for network in networks for weight in network.init(rng)]

    def apply(self, weights: Sequence[Array], observation: Inputs | Array) -> Array:
        """Return the outputs (..., num_outputs) for a batch of observations."""
        remaining = iter(weights)
        pictures, rows = (), observation
        if isinstance(observation, Inputs):
            pictures, rows = observation.pictures, observation.rows
        inputs = (*pictures, *(rows[..., part.start : part.stop] for part in self.vectors))
        encoded = []
        for network, part in zip(self.encoders, inputs, strict=True):
            features = network.apply(_take(remaining, len(network.shapes)), part)
            encoded.append(features.__array_namespace__().tanh(features))
        joined = encoded[0].__array_namespace__().concatenate(encoded, axis=-1)
        return self.trunk.apply(_take(remaining, len(self.trunk.shapes)), joined)


def _take(weights: Iterator[Array], count: int) -> list[Array]:
    return [next(weights) for _ in range(count)]
