"""Evaluates and fits the critic for pictures with numba's code (`compiled_network`).

The computations are those of `critic.py`: V of every state, and Adam on minibatches. Pictures are
computed in pieces, one thread per core. Sums are added in the order of the pieces, so they do not
depend on the number of threads.
"""

import functools
from typing import Any

import numpy as np

from trellis.policies.chunk_threads import in_threads
from trellis.policies.compiled_network import CompiledNetwork, compiled_network
from trellis.policies.convolutions import ConvNet
from trellis.policies.several import SeveralNetwork

PIECE = 64
"""Number of pictures that a thread computes together."""
DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8
"""Constants of Adam, as optax has them."""

State = dict[str, np.ndarray]
PictureNetwork = ConvNet | SeveralNetwork
"""Network with pictures among its inputs."""


def predict(
    network: PictureNetwork, vector: np.ndarray, frames: Any, observation: Any
) -> np.ndarray:
    """Return V of observations, (n,).

    Args:
        network: Network with one output.
        vector: Its weights.
        frames: Frames as bytes, (m, height, width), or a tuple of such arrays.
        observation: Observations with indices of frames in place of pictures.
    """
    net = compiled_network(network)
    weights = net.weights(vector)

    def value_of(piece: Any) -> np.ndarray:
        outputs, _ = net.forward(weights, net.load(frames, piece, vector.dtype))
        return outputs[:, 0]

    starts = range(0, len(observation), PIECE)
    pieces = [observation[start : start + PIECE] for start in starts]
    return np.concatenate([np.zeros(0, vector.dtype), *in_threads(value_of, pieces)])


def fit(
    network: PictureNetwork,
    learning_rate: float,
    state: State,
    frames: Any,
    observation: Any,
    target: np.ndarray,
    batches: np.ndarray,
) -> tuple[State, float]:
    """Return the state after Adam on minibatches, and the mean squared error of all of them.

    Args:
        network: Network with one output.
        learning_rate: Learning rate of Adam.
        state: State of the critic.
        frames: Frames as bytes, (m, height, width), or a tuple of such arrays.
        observation: Observations with indices of frames in place of pictures.
        target: Returns, (n,).
        batches: States of each minibatch, (minibatches, size).
    """
    vector, mu, nu = (state[name].copy() for name in ("weights", "adam_mu", "adam_nu"))
    count, losses = int(state["adam_count"]), []
    net, target = compiled_network(network), target.astype(vector.dtype)
    for rows in batches:
        differentiated = functools.partial(_differentiated, net, net.weights(vector), frames)
        pieces = [rows[start : start + PIECE] for start in range(0, len(rows), PIECE)]
        mine = [observation[piece] for piece in pieces], [target[piece] for piece in pieces]
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
    net: CompiledNetwork,
    weights: Any,
    frames: Any,
    observation: Any,
    target: np.ndarray,
    size: int,
) -> tuple[float, np.ndarray]:
    """Return the part of some pictures in the mean squared error of `size`, and its gradient."""
    x = net.load(frames, observation, target.dtype)
    outputs, kept = net.forward(weights, x)
    error = outputs[:, 0] - target
    cotangent = (error * target.dtype.type(2.0 / size))[:, None]
    return float(error @ error) / size, net.gradient(weights, x, kept, cotangent)
