"""Evaluates and fits the critic for pictures with numba's code (`CompiledConvNet`).

The computations are those of `critic.py`: V of every state, and Adam on minibatches. Pictures are
computed in pieces, one thread per core. Sums are added in the order of the pieces, so they do not
depend on the number of threads.
"""

import functools

import numpy as np

from trellis.policies.chunk_threads import in_threads
from trellis.policies.compiled_convnet import CompiledConvNet, Weights, compiled
from trellis.policies.convolutions import ConvNet

PIECE = 64
"""Number of pictures that a thread computes together."""
DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8
"""Constants of Adam, as optax has them."""

State = dict[str, np.ndarray]


def predict(
    network: ConvNet, vector: np.ndarray, frames: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return V of stacks of frames, (n,).

    Args:
        network: Network with one output.
        vector: Its weights.
        frames: Frames as bytes, (m, height, width).
        index: Frames of each stack, (n, frames).
    """
    net = compiled(network)
    weights = net.weights(vector)

    def value_of(piece: np.ndarray) -> np.ndarray:
        outputs, _ = net.forward(weights, net.load(frames, piece, vector.dtype))
        return outputs[:, 0]

    pieces = [index[start : start + PIECE] for start in range(0, len(index), PIECE)]
    return np.concatenate([np.zeros(0, vector.dtype), *in_threads(value_of, pieces)])


def fit(
    network: ConvNet,
    learning_rate: float,
    state: State,
    frames: np.ndarray,
    index: np.ndarray,
    target: np.ndarray,
    batches: np.ndarray,
) -> tuple[State, float]:
    """Return the state after Adam on minibatches, and the mean squared error of all of them.

    Args:
        network: Network with one output.
        learning_rate: Learning rate of Adam.
        state: State of the critic.
        frames: Frames as bytes, (m, height, width).
        index: Frames of each state, (n, frames).
        target: Returns, (n,).
        batches: States of each minibatch, (minibatches, size).
    """
    vector, mu, nu = (state[name].copy() for name in ("weights", "adam_mu", "adam_nu"))
    count, losses = int(state["adam_count"]), []
    net, target = compiled(network), target.astype(vector.dtype)
    for rows in batches:
        differentiated = functools.partial(_differentiated, net, net.weights(vector), frames)
        pieces = [rows[start : start + PIECE] for start in range(0, len(rows), PIECE)]
        mine = [index[piece] for piece in pieces], [target[piece] for piece in pieces]
        parts = list(in_threads(differentiated, *mine, [len(rows)] * len(pieces)))
        losses.append(sum(loss for loss, _ in parts))
        gradient = functools.reduce(np.add, (part for _, part in parts))
        count += 1
        mu += (1.0 - DECAY) * (gradient - mu)
        nu += (1.0 - SQUARE_DECAY) * (gradient * gradient - nu)
        spread = np.sqrt(nu / (1.0 - SQUARE_DECAY**count)) + EPSILON
        vector -= learning_rate * (mu / (1.0 - DECAY**count)) / spread
    new = {"weights": vector, "adam_mu": mu, "adam_nu": nu}
    return {**new, "adam_count": np.array(count, np.int32)}, float(np.mean(losses))


def _differentiated(
    net: CompiledConvNet,
    weights: Weights,
    frames: np.ndarray,
    index: np.ndarray,
    target: np.ndarray,
    size: int,
) -> tuple[float, np.ndarray]:
    """Return the part of some pictures in the mean squared error of `size`, and its gradient."""
    x = net.load(frames, index, target.dtype)
    outputs, kept = net.forward(weights, x)
    error = outputs[:, 0] - target
    cotangent = (error * target.dtype.type(2.0 / size))[:, None]
    return float(error @ error) / size, net.gradient(weights, x, kept, cotangent)
