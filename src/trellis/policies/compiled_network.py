"""Chooses the compiled functions of a network with pictures: forward, tangent and gradient.

A network is compiled by numba if its pictures go through a `ConvNet` and everything else through
dense layers with biases. XLA runs all others, and all networks on accelerators.
"""

import functools
from typing import Any, Protocol, TypeGuard

import numpy as np

from trellis.inputs import Inputs
from trellis.policies.compiled_convnet import compiled, has_numba
from trellis.policies.compiled_several import CompiledSeveral
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP
from trellis.policies.several import SeveralNetwork


class CompiledNetwork(Protocol):
    """Functions of a network for chunks of observations."""

    def weights(self, vector: np.ndarray, /) -> Any:
        """Return weights, or a tangent of weights, from the start of a flat vector."""
        ...

    def load(self, frames: Any, observation: Any, dtype: Any, /) -> Any:
        """Return observations, with frame indices in place of pictures, as numbers."""
        ...

    def forward(self, weights: Any, x: Any, /) -> tuple[np.ndarray, Any]:
        """Return the outputs for observations from `load`, and all activations."""
        ...

    def tangent(self, weights: Any, direction: Any, x: Any, kept: Any, /) -> np.ndarray:
        """Return J v, (n, outputs), for a direction v of the weights."""
        ...

    def gradient(self, weights: Any, x: Any, kept: Any, cotangent: np.ndarray, /) -> np.ndarray:
        """Return Jᵀ u as a flat vector, for a cotangent u of the outputs, (n, outputs)."""
        ...


def is_compilable(network: Any) -> TypeGuard[ConvNet | SeveralNetwork]:
    """Return whether numba runs a network's derivatives; elsewhere than on a CPU, XLA does."""
    if not has_numba() or not (isinstance(network, ConvNet) or _is_plain(network)):
        return False
    import jax  # Here, because acting needs NumPy only.

    return jax.default_backend() == "cpu"


@functools.lru_cache
def compiled_network(network: ConvNet | SeveralNetwork) -> CompiledNetwork:
    """Return the compiled functions of a network."""
    return compiled(network) if isinstance(network, ConvNet) else CompiledSeveral(network)


def as_frames(observation: Any) -> tuple[Any, Any]:
    """Return the frames of pictures in full, and the observations with indices of these frames."""
    if isinstance(observation, Inputs):
        pairs = [as_frames(picture) for picture in observation.pictures]
        index = tuple(index for _, index in pairs)
        return tuple(frames for frames, _ in pairs), Inputs(index, observation.rows)
    frames = observation.reshape(-1, *observation.shape[2:])
    index = np.arange(len(frames), dtype=np.int32)
    return frames, index.reshape(observation.shape[:2])


def _is_plain(network: Any) -> bool:
    """Return whether a network for several inputs consists of the layers that can be compiled."""
    if not isinstance(network, SeveralNetwork) or not network.pictures:
        return False
    layers = (*(vector.network for vector in network.vectors), network.trunk)
    # Exact types, because a subclass may compute something else.
    return all(type(encoder) is ConvNet for encoder in network.pictures) and all(
        type(part) is MLP and (part.hidden_biases or not part.hidden) for part in layers
    )
