"""The paper's network for images: convolutions of stride 2, then dense layers (Sec. 8.2, Fig. 3).

Two convolutions of 16 channels, 4×4 with stride 2 and no padding, and 20 units; with the `paper`
preprocessing (52×40, four frames) and the factored action (3 + 3 + 2) that is

    (4·4·4 + 1)·16 + (4·4·16 + 1)·16 + (11·8·16 + 1)·20 + (20 + 1)·8 = 33,500

parameters, as the paper says. It does not say which nonlinearity: convolutions have rectifiers, as
in Mnih et al. 2013, whom it follows with images, and dense layers tanh, as in its other networks.

A convolution here is a matrix product and a rearrangement. A kernel of twice its stride is, on
blocks of stride × stride pixels taken together as channels, a kernel of 2×2 with stride 1: each
block times a matrix gives its parts in the four windows that it is a corner of, and a window adds
up the parts of its four corners. No patch is ever written out, and the products are wide enough to
be fast in both directions, where XLA's own convolution takes 10 to 20 times as long backward on a
CPU. Pictures come as bytes and are scaled here: to [0, 1] as they are, or, where they come as
signed bytes, from the levels of a standardized one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trellis.arrays import Array
from trellis.policies.networks import MLP, orthogonal

KERNEL, STRIDE = 4, 2
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Blocks of a window, by row and column."""
WHITE = 255.0
LEVELS = 16.0
"""Steps of a standardized picture's signed bytes per standard deviation."""


@dataclass(frozen=True)
class ConvNet:
    """Pictures (..., frames, height, width) of bytes, signed if standardized -> (..., outputs)."""

    inputs: tuple[int, int, int]
    """Frames (or colours), height, width."""
    channels: tuple[int, ...]
    """Channels of the convolutions, each 4×4 with stride 2."""
    hidden: tuple[int, ...]
    """Units of the dense layers that follow."""
    num_outputs: int
    """Units of the last layer."""
    output_scale: float = 0.01
    """Gain of the last layer's initialization."""

    def __post_init__(self):
        if len(self.inputs) != 3:
            raise ValueError(f"pictures are (frames, height, width), got {self.inputs}")
        if min(self.channels, default=0) < 1:
            raise ValueError(
                "pictures need one convolution or more, each with a channel or more: got the"
                f" channels {self.channels}"
            )
        for _, height, width in self.pictures:
            if height < 1 or width < 1:
                raise ValueError(
                    f"{len(self.channels)} convolutions of {KERNEL}×{KERNEL} with stride {STRIDE}"
                    f" leave nothing of pictures of {self.inputs[1]}×{self.inputs[2]}"
                )

    @property
    def pictures(self) -> list[tuple[int, int, int]]:
        """(channels, height, width) before the first convolution and after each."""
        pictures = [self.inputs]
        for channels in self.channels:
            _, height, width = pictures[-1]
            rows, columns = ((side - KERNEL) // STRIDE + 1 for side in (height, width))
            pictures.append((channels, rows, columns))
        return pictures

    @property
    def dense(self) -> MLP:
        """The layers after the convolutions."""
        flat = math.prod(self.pictures[-1])
        return MLP(flat, self.hidden, self.num_outputs, output_scale=self.output_scale)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Kernels (4, 4, in, out), each with its bias, then the dense layers."""
        shapes: list[tuple[int, ...]] = []
        channels = self.inputs[0]
        for outputs in self.channels:
            shapes += [(KERNEL, KERNEL, channels, outputs), (outputs,)]
            channels = outputs
        return (*shapes, *self.dense.shapes)

    @property
    def values_per_state(self) -> int:
        """Approximate number of activations per state: those of the convolutions."""
        return sum(
            (height // STRIDE) * (width // STRIDE) * 4 * after[0]
            for (_, height, width), after in pairwise(self.pictures)
        )

    def init(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return orthogonal kernels and matrices, and zero biases."""
        weights: list[np.ndarray] = []
        for shape in self.shapes[: 2 * len(self.channels) : 2]:
            matrix = orthogonal(rng, math.prod(shape[:-1]), shape[-1])
            weights += [math.sqrt(2.0) * matrix.reshape(shape), np.zeros(shape[-1])]
        return [*weights, *self.dense.init(rng)]

    def apply(self, weights: Sequence[Array], observation: Array) -> Array:
        """(..., frames, height, width) bytes -> (..., outputs), in the weights' precision."""
        xp = weights[0].__array_namespace__()
        observation = xp.asarray(observation)
        lead = observation.shape[:-3]
        blocks = _blocks(observation.reshape(-1, *self.inputs).transpose(0, 2, 3, 1))
        scale = 1.0 / (LEVELS if observation.dtype == np.int8 else WHITE)
        x = xp.astype(blocks, weights[0].dtype) * scale
        for index in range(len(self.channels)):
            if index:
                x = _blocks(x)
            x = _convolve(xp, x, weights[2 * index], weights[2 * index + 1])
        x = x.reshape(*lead, math.prod(self.pictures[-1]))
        return self.dense.apply(weights[2 * len(self.channels) :], x)


def _blocks(x: Array) -> Array:
    """(n, height, width, channels) -> (n, height/2, width/2, 2·2·channels); odd edges are cut.

    No window reaches an edge that is cut: with an odd side the last one ends before it.
    """
    n, height, width, channels = x.shape
    rows, columns = height // STRIDE, width // STRIDE
    x = x[:, : rows * STRIDE, : columns * STRIDE]
    x = x.reshape(n, rows, STRIDE, columns, STRIDE, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows, columns, -1)


def _convolve(xp: Any, blocks: Array, kernel: Array, bias: Array) -> Array:
    """Rectified 2×2 convolution of blocks, (n, rows, columns, k) -> (n, rows-1, columns-1, out)."""
    n, rows, columns, _ = blocks.shape
    inputs, outputs = kernel.shape[2:]
    # (block row, row in it, block column, column in it, …) -> what is in a block, then its corners.
    matrix = kernel.reshape(2, STRIDE, 2, STRIDE, inputs, outputs)
    matrix = matrix.transpose(1, 3, 4, 0, 2, 5).reshape(-1, 4 * outputs)
    parts = _product(xp, blocks, matrix).reshape(n, rows, columns, 4 * outputs)
    total = bias
    for corner, (i, j) in enumerate(CORNERS):
        channels = slice(corner * outputs, (corner + 1) * outputs)
        total = total + parts[:, i : i + rows - 1, j : j + columns - 1, channels]
    return xp.maximum(total, 0.0)


def _product(xp: Any, blocks: Array, matrix: Array) -> Array:
    """Return blocks @ matrix.

    Compiled code computes one product, whose derivatives are such products again. NumPy computes
    one for each picture, so that its rounding does not depend on the other pictures.
    """
    features = blocks.shape[-1]
    if xp is np:
        return blocks.reshape(len(blocks), -1, features) @ matrix
    return blocks.reshape(-1, features) @ matrix
