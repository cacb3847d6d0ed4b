"""Defines the paper's network for images: strided convolutions, then dense layers (Sec. 8.2).

The network of Fig. 3 has two convolutions of 16 channels, 4×4 with stride 2 and no padding, and a
dense layer of 20 units. With the `paper` preprocessing (52×40, four frames) and the factored action
(3 + 3 + 2) it has

    (4·4·4 + 1)·16 + (4·4·16 + 1)·16 + (11·8·16 + 1)·20 + (20 + 1)·8 = 33,500

parameters, which is the paper's number. The paper does not name the nonlinearities. Convolutions
use rectifiers here, because the paper follows Mnih et al. (2013) for images. Dense layers use tanh,
like the paper's other networks.

A convolution is computed as a matrix product and a rearrangement. The pixels of each block of
stride × stride pixels become channels. On these blocks, a kernel of twice its stride is a 2×2
kernel with stride 1. One matrix product gives each block's contribution to the four windows that it
is a corner of. Each window adds up the contributions of its four corners. No patches are copied,
and the products are fast in both directions. On a CPU, XLA's own convolution takes 10 to 20 times
as long backward.

Pictures arrive as bytes. Unsigned bytes are scaled to [0, 1]; signed bytes are standardized
pictures, and are scaled to standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.compiled_convnet import compiled, has_numba
from trellis.policies.networks import MLP, orthogonal

KERNEL, STRIDE = 4, 2
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Row and column of each of the four blocks of a window."""
WHITE = 255.0
"""Largest value of an unsigned byte."""
LEVELS = 16.0
"""Number of steps per standard deviation in the signed bytes of a standardized picture."""


@dataclass(frozen=True)
class ConvNet:
    """Convolutional network from pictures (..., frames, height, width) to (..., outputs).

    Pictures are unsigned bytes, or signed bytes if they are standardized.

    Example:
        >>> network = ConvNet((4, 52, 40), channels=(16, 16), hidden=(20,), num_outputs=8)
        >>> sum(math.prod(shape) for shape in network.shapes)
        33500
    """

    inputs: tuple[int, int, int]
    """Number of frames (or colours), height and width."""
    channels: tuple[int, ...]
    """Channels of the convolutions, each 4×4 with stride 2."""
    hidden: tuple[int, ...]
    """Units of the dense layers after the convolutions."""
    num_outputs: int
    """Units of the last layer."""
    output_scale: float = 0.01
    """Gain of the last layer's initial weights."""

    def __post_init__(self):
        if len(self.inputs) != 3:
            raise ValueError(f"inputs must be (frames, height, width), got {self.inputs}")
        if min(self.channels, default=0) < 1:
            raise ValueError(
                "channels must have at least one convolution with at least one channel each, got"
                f" {self.channels}"
            )
        for _, height, width in self.pictures:
            if height < 1 or width < 1:
                raise ValueError(
                    f"pictures of {self.inputs[1]}×{self.inputs[2]} are too small for"
                    f" {len(self.channels)} convolutions of {KERNEL}×{KERNEL} with stride"
                    f" {STRIDE}: use fewer convolutions (channels) or larger pictures"
                )

    @property
    def pictures(self) -> list[tuple[int, int, int]]:
        """Shapes (channels, height, width) before the first convolution and after each."""
        pictures = [self.inputs]
        for channels in self.channels:
            _, height, width = pictures[-1]
            rows, columns = ((side - KERNEL) // STRIDE + 1 for side in (height, width))
            pictures.append((channels, rows, columns))
        return pictures

    @property
    def dense(self) -> MLP:
        """Dense layers that follow the convolutions."""
        flat = math.prod(self.pictures[-1])
        return MLP(flat, self.hidden, self.num_outputs, output_scale=self.output_scale)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: kernels (4, 4, in, out) with biases, then the dense layers."""
        shapes: list[tuple[int, ...]] = []
        channels = self.inputs[0]
        for outputs in self.channels:
            shapes += [(KERNEL, KERNEL, channels, outputs), (outputs,)]
            channels = outputs
        return (*shapes, *self.dense.shapes)

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state, counted in the convolutions."""
        return sum(
            (height // STRIDE) * (width // STRIDE) * 4 * after[0]
            for (_, height, width), after in pairwise(self.pictures)
        )

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return initial weights: orthogonal kernels and matrices, and zero biases."""
        weights: list[np.ndarray] = []
        for shape in self.shapes[: 2 * len(self.channels) : 2]:
            matrix = orthogonal(rng, math.prod(shape[:-1]), shape[-1])
            weights += [math.sqrt(2.0) * matrix.reshape(shape), np.zeros(shape[-1])]
        return [*weights, *self.dense.init(rng)]

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """Return the outputs (..., num_outputs) for pictures (..., frames, height, width).

        Args:
            weights: Weights in the order of `shapes`; they set the precision.
            observation: Pictures as bytes; signed bytes are standardized pictures.
        """
        xp = weights[0].__array_namespace__()
        observation = xp.asarray(observation)
        lead = observation.shape[:-3]
        if xp is np and has_numba():
            return self._apply_compiled(weights, observation)
        blocks = _blocks(observation.reshape(-1, *self.inputs).transpose(0, 2, 3, 1))
        x = xp.astype(blocks, weights[0].dtype) * byte_scale(observation.dtype)
        for index in range(len(self.channels)):
            if index:
                x = _blocks(x)
            x = _convolve(xp, x, weights[2 * index], weights[2 * index + 1])
        x = x.reshape(*lead, math.prod(self.pictures[-1]))
        return self.dense.apply(weights[2 * len(self.channels) :], x)

    def _apply_compiled(self, weights: Sequence[np.ndarray], observation: np.ndarray) -> np.ndarray:
        lead, stack = observation.shape[:-3], self.inputs[0]
        frames = np.ascontiguousarray(observation).reshape(-1, *self.inputs[1:])
        index = np.arange(len(frames), dtype=np.int32).reshape(-1, stack)
        net = compiled(self)
        padded = net.pad(weights)
        x = net.convolve(padded, net.load(frames, index, weights[0].dtype))[-1]
        return self.dense.apply(padded.dense, x.reshape(*lead, -1))


def byte_scale(dtype: Any) -> float:
    """Return the value of one level of bytes of this type, signed or unsigned."""
    return 1.0 / (LEVELS if dtype == np.int8 else WHITE)


def _blocks(x: Array) -> Array:
    """Turn blocks of 2×2 pixels into channels: (n, h, w, c) -> (n, h/2, w/2, 4c).

    The last row or column of an odd side is dropped, because no window reaches it.
    """
    n, height, width, channels = x.shape
    rows, columns = height // STRIDE, width // STRIDE
    x = x[:, : rows * STRIDE, : columns * STRIDE]
    x = x.reshape(n, rows, STRIDE, columns, STRIDE, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows, columns, -1)


def _convolve(xp: Any, blocks: Array, kernel: Array, bias: Array) -> Array:
    """Convolve blocks with a 2×2 kernel and rectify: (n, r, c, k) -> (n, r-1, c-1, out)."""
    n, rows, columns, _ = blocks.shape
    inputs, outputs = kernel.shape[2:]
    # From (block row, row in block, block column, column in block, in, out) to (block, corner·out).
    matrix = kernel.reshape(2, STRIDE, 2, STRIDE, inputs, outputs)
    matrix = matrix.transpose(1, 3, 4, 0, 2, 5).reshape(-1, 4 * outputs)
    parts = _product(xp, blocks, matrix).reshape(n, rows, columns, 4 * outputs)
    total = bias
    for corner, (i, j) in enumerate(CORNERS):
        channels = slice(corner * outputs, (corner + 1) * outputs)
        total = total + parts[:, i : i + rows - 1, j : j + columns - 1, channels]
    # The derivative at 0 is 0, as usual; black pictures under zero biases are exactly there.
    return xp.where(total <= 0.0, 0.0, total)


def _product(xp: Any, blocks: Array, matrix: Array) -> Array:
    """Return blocks @ matrix.

    JAX computes one product, whose derivatives are single products too. NumPy computes one product
    per picture, so that the rounding of a picture does not depend on the other pictures.
    """
    features = blocks.shape[-1]
    if xp is np:
        return blocks.reshape(len(blocks), -1, features) @ matrix
    return blocks.reshape(-1, features) @ matrix
