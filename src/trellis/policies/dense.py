"""Runs dense layers with tanh between them, and their derivatives, on chunks of states in NumPy.

Weights are the matrices and biases of the layers in order. The hidden values that `forward` returns
are what `tangent` and `gradient` need.
"""

from collections.abc import Sequence

import numpy as np

Dense = Sequence[np.ndarray]
"""Matrix and bias of each layer, in order."""


def forward(dense: Dense, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the outputs for inputs (n, features), and the result of every hidden layer."""
    *pairs, (last, last_bias) = _pairs(dense)
    hidden = []
    for matrix, bias in pairs:
        x = x @ matrix
        x += bias
        np.tanh(x, out=x)
        hidden.append(x)
    return x @ last + last_bias, hidden


def tangent(
    dense: Dense,
    direction: Dense,
    x: np.ndarray,
    hidden: Sequence[np.ndarray],
    moved: np.ndarray | None = None,
) -> np.ndarray:
    """Return the tangent of the outputs.

    Args:
        dense: Weights.
        direction: Tangent of the weights.
        x: Inputs.
        hidden: Results of the hidden layers.
        moved: Tangent of the inputs; None if they are constant.
    """
    *pairs, (last, _) = _pairs(dense)
    *changes, (last_change, last_bias) = _pairs(direction)
    for (matrix, _), (change, bias_change), result in zip(pairs, changes, hidden, strict=True):
        step = x @ change + bias_change
        moved = (step if moved is None else moved @ matrix + step) * (1.0 - result * result)
        x = result
    step = x @ last_change + last_bias
    return step if moved is None else moved @ last + step


def gradient(
    dense: Dense,
    x: np.ndarray,
    hidden: Sequence[np.ndarray],
    cotangent: np.ndarray,
    found: Dense,
) -> np.ndarray:
    """Write the gradient by the weights to `found`, and return the gradient by the inputs.

    Args:
        dense: Weights.
        x: Inputs.
        hidden: Results of the hidden layers.
        cotangent: Cotangent of the outputs.
        found: Arrays like `dense` that are written to.
    """
    inputs = [x, *hidden]
    for index, (matrix, _) in reversed(list(enumerate(_pairs(dense)))):
        value = inputs[index]
        np.matmul(value.T, cotangent, out=found[2 * index])
        np.sum(cotangent, axis=0, out=found[2 * index + 1])
        cotangent = cotangent @ matrix.T
        if index:
            cotangent *= 1.0 - value * value
    return cotangent


def _pairs(dense: Dense) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers as (matrix, bias)."""
    return list(zip(dense[::2], dense[1::2], strict=True))
