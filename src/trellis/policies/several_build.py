"""Builds networks for several inputs: an encoder for every picture and for the rest."""

import math
from collections.abc import Mapping
from typing import Any

from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP, Network
from trellis.policies.several import SeveralNetwork, VectorEncoder
from trellis.spaces import ObservationPart, SeveralFeatures

DEFAULT_UNITS = 64
"""Outputs of an encoder if the policy has no hidden layers."""
GAIN = math.sqrt(2.0)
"""Gain of an encoder's initial weights, that of hidden layers."""
MEMBERS = ("num_outputs", "shapes", "values_per_state", "init", "apply")
"""What a network has."""


def several_network(
    features: SeveralFeatures,
    channels: tuple[int, ...],
    hidden: tuple[int, ...],
    outputs: int,
    output_scale: float,
    encoders: Mapping[str, Network] | None = None,
) -> SeveralNetwork:
    """Return the network for observations with several parts.

    Every encoder has as many outputs as the first hidden layer. The other hidden layers follow
    where the encoded parts are joined.

    Args:
        features: The parts, as `observation_encoder` returns them.
        channels: Channels of the convolutions.
        hidden: Units of the hidden layers.
        outputs: Number of outputs.
        output_scale: Gain of the last layer's initial weights.
        encoders: Encoders of your own, by the key of their part.

    Raises:
        TypeError: An encoder is not a network.
        ValueError: An encoder belongs to no part of the observation, or has other inputs.
    """
    units = hidden[0] if hidden else DEFAULT_UNITS
    own = _checked(encoders or {}, features)
    pictures: list[Network] = []
    for part in features.pictures:
        frames, height, width = part.shape
        default = ConvNet((frames, height, width), channels, (), units, GAIN)
        pictures.append(own.pop(part.name, default))
    vectors: list[VectorEncoder] = []
    start = 0
    rest: list[ObservationPart] = []
    for part in features.vectors:
        if part.name in own:
            _flush(vectors, rest, start, units)
            start += sum(each.size for each in rest)
            rest = []
            vectors.append(VectorEncoder(start, start + part.size, own.pop(part.name)))
            start += part.size
        else:
            rest.append(part)
    _flush(vectors, rest, start, units)
    joined = sum(network.num_outputs for network in pictures)
    joined += sum(vector.network.num_outputs for vector in vectors)
    trunk = MLP(joined, hidden[1:], outputs, output_scale=output_scale)
    return SeveralNetwork(tuple(pictures), tuple(vectors), trunk)


def _checked(encoders: Mapping[str, Network], features: SeveralFeatures) -> dict[str, Network]:
    """Return the encoders of a user; raise if one is not a network for a part of observations."""
    if not isinstance(encoders, Mapping):
        raise TypeError(f"encoders must map keys to networks, got {type(encoders).__name__}")
    parts = {part.name: part for part in (*features.pictures, *features.vectors)}
    for name, network in encoders.items():
        if name not in parts:
            raise ValueError(
                f"encoders has the key {name!r}, but the parts of the observation are"
                f" {', '.join(parts)}"
            )
        missing = [member for member in MEMBERS if not hasattr(network, member)]
        if missing:
            raise TypeError(
                f"the encoder of {name!r} must be a network, but {type(network).__name__} has no"
                f" {', '.join(missing)}"
            )
        part = parts[name]
        wanted = part.shape if part in features.pictures else part.size
        if isinstance(network, MLP | ConvNet) and network.inputs != wanted:
            raise ValueError(
                f"the encoder of {name!r} must have the inputs {wanted}, got {network.inputs}"
            )
    return dict(encoders)


def _flush(vectors: list[VectorEncoder], parts: list[Any], start: int, units: int) -> None:
    """Append one encoder for adjacent parts without an encoder of their own."""
    size = sum(part.size for part in parts)
    if size:
        network = MLP(size, (), units, output_scale=GAIN)
        vectors.append(VectorEncoder(start, start + size, network))
