"""Runs a `ConvNet` and its derivatives on batches of pictures with numba's code.

XLA computes the gradient of a convolution several times more slowly than the same number of
products of matrices (`kernels` reaches their speed). `CompiledConvNet` gives the three
functions that a trust-region step needs, for a chunk of pictures at a time:

    forward   pictures → outputs and activations
    tangent   tangent v of the weights → J v
    gradient  cotangent u of the outputs → Jᵀ u

Without numba, everything runs in XLA or NumPy; results agree to rounding.
"""

import functools
import importlib.util
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trellis.policies import dense
from trellis.policies.networks import num_weights, unflatten

if TYPE_CHECKING:
    from trellis.policies.convolutions import ConvNet


@functools.cache
def has_numba() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


class Weights(NamedTuple):
    """Weights of a network, with channels padded for the compiled code."""

    kernels: list[np.ndarray]
    """Kernels, (4, 4, in, out)."""
    biases: list[np.ndarray]
    """Biases of the convolutions."""
    dense: list[np.ndarray]
    """Matrices and biases of the dense layers, in order."""


class Activations(NamedTuple):
    """Values of a chunk of pictures on the way through a network."""

    convolved: list[np.ndarray]
    """Result of every convolution, (n, rows·columns·channels)."""
    hidden: list[np.ndarray]
    """Result of every hidden dense layer, (n, units)."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of all values."""
        return sum(array.nbytes for array in (*self.convolved, *self.hidden))


class CompiledConvNet:
    """Functions of a convolutional network on bytes, compiled by numba.

    `compiled(network)` returns an object that is made once per network.

    Args:
        network: Description of the network.
    """

    def __init__(self, network: "ConvNet"):
        from trellis.policies.kernels.convolution import layout, needed, padded

        self.network = network
        self._layouts = [
            layout(*shapes, planar=index == 0)
            for index, shapes in enumerate(pairwise(needed(network.pictures)))
        ]
        self._pixels, self._size = math.prod(network.inputs), num_weights(network)
        self._is_padded = any(padded(count) != count for count in network.channels)

    def weights(self, vector: np.ndarray) -> Weights:
        """Return weights, or a tangent of weights, from the start of a flat vector."""
        return self.pad(unflatten(self.network, np.asarray(vector))[0])

    def pad(self, weights: Sequence[np.ndarray]) -> Weights:
        """Return weights in the order of `ConvNet.shapes`, with padded channels."""
        from trellis.policies.kernels.convolution import padded

        count = len(self.network.channels)
        kernels, biases = list(weights[: 2 * count : 2]), list(weights[1 : 2 * count : 2])
        layers = list(weights[2 * count :])
        for index, bias in enumerate(biases if self._is_padded else ()):
            more = padded(len(bias)) - len(bias)
            if more:
                kernels[index] = np.pad(kernels[index], [(0, 0)] * 3 + [(0, more)])
                biases[index] = np.pad(bias, (0, more))
                if index + 1 < count:
                    kernels[index + 1] = np.pad(
                        kernels[index + 1], [(0, 0), (0, 0), (0, more), (0, 0)]
                    )
                else:
                    matrix = layers[0].reshape(-1, len(bias), layers[0].shape[1])
                    matrix = np.pad(matrix, [(0, 0), (0, more), (0, 0)])
                    layers[0] = matrix.reshape(-1, matrix.shape[-1])
        return Weights(
            [np.ascontiguousarray(kernel) for kernel in kernels],
            [np.ascontiguousarray(bias) for bias in biases],
            layers,
        )

    def load(self, frames: np.ndarray, index: np.ndarray, dtype: Any) -> np.ndarray:
        """Return stacks of frames as numbers, (n, frames·height·width).

        Args:
            frames: Frames as bytes, (m, height, width); signed bytes are standardized.
            index: Frames of each stack, (n, frames).
            dtype: Data type of the result.
        """
        from trellis.policies.convolutions import byte_scale
        from trellis.policies.kernels.convolution import load_frames

        out = np.empty((len(index), self._pixels), dtype)
        scale = out.dtype.type(byte_scale(frames.dtype))
        load_frames(frames.reshape(len(frames), -1), index, scale, out)
        return out

    def convolve(self, weights: Weights, x: np.ndarray) -> list[np.ndarray]:
        """Return the result of every convolution for pictures from `load`."""
        from trellis.policies.kernels.convolution import convolve

        convolved = []
        for layer, kernel, bias in zip(self._layouts, *weights[:2], strict=True):
            out = np.empty((len(x), math.prod(layer.shape)), x.dtype)
            matrix = kernel.reshape(-1, len(bias))
            convolve(x, layer.windows, layer.taps, layer.outputs, matrix, bias, out)
            convolved.append(out)
            x = out
        return convolved

    def forward(self, weights: Weights, x: np.ndarray) -> tuple[np.ndarray, Activations]:
        """Return the outputs for pictures from `load`, and all activations."""
        convolved = self.convolve(weights, x)
        outputs, hidden = dense.forward(weights.dense, convolved[-1])
        return outputs, Activations(convolved, hidden)

    def tangent(
        self, weights: Weights, direction: Weights, x: np.ndarray, kept: Activations
    ) -> np.ndarray:
        """Return J v, (n, outputs), for a direction v of the weights."""
        from trellis.policies.kernels.convolution import push_tangent

        moved = np.empty((0, x.shape[1]), x.dtype)
        layers = zip(
            self._layouts, *weights[:2], *direction[:2], (x, *kept.convolved), strict=False
        )
        for (layer, kernel, bias, change, bias_change, x), active in zip(
            layers, kept.convolved, strict=True
        ):
            out = np.empty_like(active)
            matrices = kernel.reshape(-1, len(bias)), change.reshape(-1, len(bias))
            offsets = layer.windows, layer.taps, layer.outputs
            push_tangent(x, moved, *offsets, *matrices, bias_change, active, out)
            moved = out
        last = kept.convolved[-1]
        return dense.tangent(weights.dense, direction.dense, last, kept.hidden, moved)

    def gradient(
        self, weights: Weights, x: np.ndarray, kept: Activations, cotangent: np.ndarray
    ) -> np.ndarray:
        """Return Jᵀ u as a flat vector, for a cotangent u of the outputs, (n, outputs)."""
        from trellis.policies.kernels.convolution import pull_input, pull_kernel, turn

        flat = np.empty(self._size, x.dtype)
        parts, _ = unflatten(self.network, flat)
        like = [w for pair in zip(*weights[:2], strict=True) for w in pair] + weights.dense
        found = [np.empty_like(w) for w in like] if self._is_padded else parts
        count = 2 * len(weights.kernels)
        cotangent = dense.gradient(
            weights.dense, kept.convolved[-1], kept.hidden, cotangent, found[count:]
        )
        below = [x, *kept.convolved[:-1]]
        for index in reversed(range(len(below))):
            layer, kernel, active = self._layouts[index], weights.kernels[index], kept[0][index]
            by_kernel, by_bias = found[2 * index].reshape(-1), found[2 * index + 1]
            by_kernel[:], by_bias[:] = 0.0, 0.0
            offsets = layer.windows, layer.taps, layer.rows
            pull_kernel(below[index], *offsets, active, cotangent, by_kernel, by_bias)
            if index:
                out = np.empty_like(below[index])
                around = layer.around, layer.near, layer.pixels
                pull_input(cotangent, *around, turn(kernel), layer.shape, out)
                cotangent = out
        if self._is_padded:
            self._remove_padding(found, parts)
        return flat

    def _remove_padding(self, padded: list[np.ndarray], parts: list[np.ndarray]) -> None:
        """Write arrays without their padded channels to `parts`."""
        first_matrix, channels = 2 * len(self.network.channels), self.network.channels[-1]
        for index, (source, part) in enumerate(zip(padded, parts, strict=True)):
            if index == first_matrix:  # Its rows are (pixel, channel).
                source = source.reshape(len(part) // channels, -1, part.shape[1])
                part[...] = source[:, :channels].reshape(part.shape)
            else:
                part[...] = source[tuple(slice(size) for size in part.shape)]


@functools.lru_cache
def compiled(network: "ConvNet") -> CompiledConvNet:
    """Return the compiled functions of a network."""
    return CompiledConvNet(network)
