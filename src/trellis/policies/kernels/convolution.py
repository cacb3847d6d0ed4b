"""Computes convolutions of 4×4 with stride 2 and their derivatives, compiled by numba.

Each function takes a batch of pictures and handles one picture after the other, so that a picture's
values stay in the cache. A `Layout` says where the values are. Channels after a convolution come
last and are padded to a multiple of 16; `tile_product.py` does the arithmetic.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trellis.policies.kernels.tile_product import LANES, add_product, compiled

KERNEL, STRIDE = 4, 2


class Layout(NamedTuple):
    """Offsets in the arrays of a convolution."""

    windows: np.ndarray
    """First value of every window in its input picture."""
    taps: np.ndarray
    """Values of a window, relative to its first: (4, 4, inputs) in order."""
    outputs: np.ndarray
    """First channel of every window in the result."""
    rows: np.ndarray
    """Rows of the matrix of kernel gradients, one per tap."""
    around: np.ndarray
    """First channel of the windows in a padded result, for pixels of one parity."""
    near: np.ndarray
    """Channels of the four windows that a pixel belongs to, relative to `around`."""
    pixels: np.ndarray
    """First channel of the pixels of each of the four parities in the input, (4, pixels)."""
    shape: tuple[int, int, int]
    """Rows, columns and padded channels of the result."""


def padded(channels: int) -> int:
    """Return a number of channels, rounded up to a multiple of `LANES`."""
    return -(-channels // LANES) * LANES


def needed(pictures: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the shapes of the pictures, cropped to what the next convolution's windows reach.

    The paper's first result is 25×19, and the second convolution reaches 24×18 of it.

    Args:
        pictures: Shapes (channels, height, width) before the first convolution and after each.
    """
    shapes = [pictures[-1]]
    for channels, *_ in reversed(pictures[1:-1]):
        rows, columns = (STRIDE * (side - 1) + KERNEL for side in shapes[-1][1:])
        shapes.append((channels, rows, columns))
    return [pictures[0], *reversed(shapes)]


@functools.lru_cache
def layout(inputs: tuple[int, int, int], outputs: tuple[int, int, int], *, planar: bool) -> Layout:
    """Return the layout of a convolution.

    Args:
        inputs: Channels, height and width of the input.
        outputs: Channels, rows and columns of the result, from `needed`.
        planar: Whether the input is (channels, height, width), as frames are; otherwise it is
            (height, width, padded channels).
    """
    (depth, height, width), (channels, rows, columns) = inputs, outputs
    wide, deep = (1, height * width) if planar else (padded(depth), 1)
    down, out = width * wide, padded(channels)
    r, c = np.arange(rows)[:, None], np.arange(columns)
    i, j, k = np.ogrid[:KERNEL, :KERNEL, : depth if planar else padded(depth)]
    taps = (i * down + j * wide + k * deep).ravel()
    # The result with one row and column of zeros on each side, for the gradient by the input. A
    # pixel at 2a + parity is in the windows a and a − 1.
    a, b = np.arange(rows + 1)[:, None], np.arange(columns + 1)
    across = columns + 2
    e, g, o = np.ogrid[:2, :2, :out]
    parity = [
        (((2 * a + p) * width + 2 * b + q) * wide).ravel() for p in range(2) for q in range(2)
    ]
    return Layout(
        windows=(STRIDE * (r * down + c * wide)).ravel(),
        taps=taps,
        outputs=np.arange(rows * columns) * out,
        rows=np.arange(len(taps)) * out,
        around=(((a + 1) * across + b + 1) * out).ravel(),
        near=(o - (e * across + g) * out).ravel(),
        pixels=np.stack(parity),
        shape=(rows, columns, out),
    )


@compiled
def load_frames(frames, index, scale, out):
    """Write scaled stacks of frames to `out`, (n, frames·pixels).

    Args:
        frames: Bytes, (m, pixels).
        index: Frames of each stack, (n, frames).
        scale: Value of one level.
        out: Array for the result.
    """
    size = frames.shape[1]
    for n in range(index.shape[0]):
        for k in range(index.shape[1]):
            frame, line = frames[index[n, k]], out[n, k * size : (k + 1) * size]
            for pixel in range(size):
                line[pixel] = frame[pixel] * scale


@compiled
def _repeated(bias, count):
    """Return the bias of all channels, once for every window."""
    out = np.empty((count, len(bias)), bias.dtype)
    out[:] = bias
    return out.reshape(-1)


@compiled
def convolve(x, windows, taps, outputs, kernel, bias, out):
    """Write the rectified convolution of every picture to `out`, (n, windows·channels)."""
    start, zero = _repeated(bias, len(outputs)), x.dtype.type(0)
    for n in range(len(x)):
        line = out[n]
        for k in range(len(line)):
            line[k] = start[k]
        add_product(x[n], windows, taps, kernel, line, outputs)
        for k in range(len(line)):
            line[k] *= line[k] > zero  # NaN stays, and there is no branch


@compiled
def push_tangent(x, tangent, windows, taps, outputs, kernel, kernel_tangent, bias, active, out):
    """Write the tangent of `convolve` to `out`.

    Args:
        x: Input pictures, (n, values).
        tangent: Tangent of x; empty if it is zero.
        windows: See `Layout`.
        taps: See `Layout`.
        outputs: See `Layout`.
        kernel: Kernel, (taps, channels).
        kernel_tangent: Tangent of the kernel.
        bias: Tangent of the bias.
        active: Result of `convolve`.
        out: Array for the tangent of the result.
    """
    start, zero = _repeated(bias, len(outputs)), x.dtype.type(0)
    for n in range(len(x)):
        line, result = out[n], active[n]
        for k in range(len(line)):
            line[k] = start[k]
        add_product(x[n], windows, taps, kernel_tangent, line, outputs)
        if len(tangent) > 0:
            add_product(tangent[n], windows, taps, kernel, line, outputs)
        for k in range(len(line)):
            line[k] *= result[k] > zero


@compiled
def pull_kernel(x, windows, taps, rows, active, cotangent, kernel, bias):
    """Mask the cotangent of `convolve` in place, and add the gradients by kernel and bias.

    Args:
        x: Input pictures, (n, values).
        windows: See `Layout`.
        taps: See `Layout`.
        rows: See `Layout`.
        active: Result of `convolve`.
        cotangent: Cotangent of the result; afterwards that of the values before the rectifier.
        kernel: Gradient by the kernel, (taps·channels,).
        bias: Gradient by the bias.
    """
    channels, zero = len(bias), x.dtype.type(0)
    # The sum over windows is a product with 1.
    one, first, same = np.ones(1, x.dtype), np.zeros(1, np.int64), np.zeros(len(windows), np.int64)
    for n in range(len(x)):
        line, result = cotangent[n], active[n]
        for k in range(len(line)):
            line[k] *= result[k] > zero
        by_window = line.reshape(-1, channels)
        add_product(one, first, same, by_window, bias, first)
        add_product(x[n], taps, windows, by_window, kernel, rows)


@compiled
def pull_input(cotangent, around, near, pixels, turned, shape, out):
    """Write the cotangent of the input of `convolve` to `out`.

    Args:
        cotangent: Cotangent before the rectifier, (n, windows·channels).
        around: See `Layout`.
        near: See `Layout`.
        pixels: See `Layout`.
        turned: Kernel of each parity, (4, windows·channels, inputs), from `turn`.
        shape: See `Layout`.
        out: Array for the result, (n, values).
    """
    rows, columns, channels = shape
    across = (columns + 2) * channels
    wide = np.zeros((rows + 2) * across, cotangent.dtype)
    for n in range(len(cotangent)):
        for row in range(rows):
            start = (row + 1) * across + channels
            for k in range(columns * channels):
                wide[start + k] = cotangent[n, row * columns * channels + k]
        for k in range(out.shape[1]):
            out[n, k] = 0
        for parity in range(4):
            add_product(wide, around, near, turned[parity], out[n], pixels[parity])


def turn(kernel: np.ndarray) -> np.ndarray:
    """Return a kernel (4, 4, in, out) as four matrices (4·out, in), one per parity of a pixel."""
    inputs, outputs = kernel.shape[2:]
    # Row i of the kernel is 2e + p: parity p, window e.
    parts = kernel.reshape(2, 2, 2, 2, inputs, outputs).transpose(1, 3, 0, 2, 5, 4)
    return np.ascontiguousarray(parts).reshape(4, 4 * outputs, inputs)
