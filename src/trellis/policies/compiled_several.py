"""Runs a `SeveralNetwork` and its derivatives on batches of pictures and rows of numbers.

The convolutions run in `CompiledConvNet`, the dense layers in NumPy (`dense.py`). The functions are
those of `CompiledConvNet`: forward, tangent and gradient.
"""

from typing import Any, NamedTuple

import numpy as np

from trellis.inputs import Inputs
from trellis.policies import dense
from trellis.policies.compiled_convnet import Activations, Weights, compiled
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import num_weights, unflatten
from trellis.policies.several import SeveralNetwork


class SeveralWeights(NamedTuple):
    """Weights of a network for several inputs."""

    pictures: list[Weights]
    """Weights of the encoder of each picture."""
    vectors: list[list[np.ndarray]]
    """Weights of the encoders of columns."""
    trunk: list[np.ndarray]
    """Weights of the dense layers that follow."""


class Loaded(NamedTuple):
    """A chunk of observations as numbers."""

    pictures: list[np.ndarray]
    """Stacks of frames of each picture, (n, frames·height·width)."""
    columns: list[np.ndarray]
    """Columns of each encoder of columns, (n, features)."""


class SeveralActivations(NamedTuple):
    """Values of a chunk on the way through a network."""

    pictures: list[Activations]
    """Activations of the encoder of each picture."""
    vectors: list[list[np.ndarray]]
    """Results of the hidden layers of the encoders of columns."""
    joined: np.ndarray
    """Encoded inputs, (n, features)."""
    hidden: list[np.ndarray]
    """Results of the hidden layers that follow."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of all values."""
        arrays = [self.joined, *self.hidden, *(value for part in self.vectors for value in part)]
        return sum(part.nbytes for part in self.pictures) + sum(a.nbytes for a in arrays)


class CompiledSeveral:
    """Functions of a network for pictures and vectors; numba compiles its convolutions.

    Args:
        network: A network for which `is_compilable` holds.
    """

    def __init__(self, network: SeveralNetwork):
        self.network = network
        self._nets = [compiled(each) for each in network.pictures if isinstance(each, ConvNet)]
        parts = (*network.encoders, network.trunk)
        self._splits = np.cumsum([num_weights(part) for part in parts])[:-1]
        self._joined_splits = np.cumsum([part.num_outputs for part in network.encoders])[:-1]

    def weights(self, vector: np.ndarray) -> SeveralWeights:
        """Return weights, or a tangent of weights, from the start of a flat vector."""
        vector = np.asarray(vector)[: num_weights(self.network)]
        parts, count = np.split(vector, self._splits), len(self._nets)
        networks = (*self.network.encoders, self.network.trunk)
        *vectors, trunk = (
            unflatten(network, part)[0]
            for network, part in zip(networks[count:], parts[count:], strict=True)
        )
        pairs = zip(self._nets, parts[:count], strict=True)
        return SeveralWeights([net.weights(part) for net, part in pairs], vectors, trunk)

    def load(self, frames: tuple[np.ndarray, ...], observation: Inputs, dtype: Any) -> Loaded:
        """Return observations as numbers.

        Args:
            frames: Frames of each picture as bytes, (m, height, width).
            observation: Observations with frame indices in place of pictures.
            dtype: Data type of the result.
        """
        indices = observation.pictures
        pictures = [net.load(frames[i], indices[i], dtype) for i, net in enumerate(self._nets)]
        rows = observation.rows.astype(dtype, copy=False)
        columns = [rows[:, part.start : part.stop] for part in self.network.vectors]
        return Loaded(pictures, columns)

    def forward(self, weights: SeveralWeights, x: Loaded) -> tuple[np.ndarray, SeveralActivations]:
        """Return the outputs for observations from `load`, and all activations."""
        seen = [net.forward(weights.pictures[i], x.pictures[i]) for i, net in enumerate(self._nets)]
        read = [dense.forward(own, x.columns[i]) for i, own in enumerate(weights.vectors)]
        encoded = [outputs for outputs, _ in seen] + [outputs for outputs, _ in read]
        joined = np.concatenate(encoded, axis=1)
        np.tanh(joined, out=joined)
        outputs, hidden = dense.forward(weights.trunk, joined)
        pictures, vectors = [kept for _, kept in seen], [kept for _, kept in read]
        return outputs, SeveralActivations(pictures, vectors, joined, hidden)

    def tangent(
        self,
        weights: SeveralWeights,
        direction: SeveralWeights,
        x: Loaded,
        kept: SeveralActivations,
    ) -> np.ndarray:
        """Return J v, (n, outputs), for a direction v of the weights."""
        seen = [
            net.tangent(weights.pictures[i], direction.pictures[i], x.pictures[i], kept.pictures[i])
            for i, net in enumerate(self._nets)
        ]
        read = [
            dense.tangent(own, direction.vectors[i], x.columns[i], kept.vectors[i])
            for i, own in enumerate(weights.vectors)
        ]
        moved = np.concatenate([*seen, *read], axis=1)
        moved *= 1.0 - kept.joined * kept.joined
        return dense.tangent(weights.trunk, direction.trunk, kept.joined, kept.hidden, moved)

    def gradient(
        self, weights: SeveralWeights, x: Loaded, kept: SeveralActivations, cotangent: np.ndarray
    ) -> np.ndarray:
        """Return Jᵀ u as a flat vector, for a cotangent u of the outputs, (n, outputs)."""
        flat = np.empty(num_weights(self.network), cotangent.dtype)
        parts, count = np.split(flat, self._splits), len(self._nets)
        trunk, _ = unflatten(self.network.trunk, parts[-1])
        cotangent = dense.gradient(weights.trunk, kept.joined, kept.hidden, cotangent, trunk)
        cotangent *= 1.0 - kept.joined * kept.joined
        encoded = [np.ascontiguousarray(u) for u in np.split(cotangent, self._joined_splits, 1)]
        for i, net in enumerate(self._nets):
            values = weights.pictures[i], x.pictures[i], kept.pictures[i]
            parts[i][:] = net.gradient(*values, encoded[i])
        for i, vector in enumerate(self.network.vectors):
            found, _ = unflatten(vector.network, parts[count + i])
            values = weights.vectors[i], x.columns[i], kept.vectors[i]
            dense.gradient(*values, encoded[count + i], found)
        return flat
