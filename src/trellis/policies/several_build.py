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
        ValueError: An encoder belongs to no part of the observation.
    """
    units = hidden[0] if hidden else DEFAULT_UNITS
    own = dict(encoders or {})
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
    if own:
        known = ", ".join(part.name for part in (*features.pictures, *features.vectors))
        raise ValueError(
            f"encoders has the key {next(iter(own))!r}, but the parts of the observation are"
            f" {known}"
        )
    joined = sum(network.num_outputs for network in pictures)
    joined += sum(vector.network.num_outputs for vector in vectors)
    trunk = MLP(joined, hidden[1:], outputs, output_scale=output_scale)
    return SeveralNetwork(tuple(pictures), tuple(vectors), trunk)


def _flush(vectors: list[VectorEncoder], parts: list[Any], start: int, units: int) -> None:
    """Append one encoder for adjacent parts without an encoder of their own."""
    size = sum(part.size for part in parts)
    if size:
        network = MLP(size, (), units, output_scale=GAIN)
        vectors.append(VectorEncoder(start, start + size, network))
