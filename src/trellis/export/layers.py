"""Translates networks into operations: dense layers, convolutions, several inputs and memory."""

from collections.abc import Sequence

import numpy as np

from trellis.export.features import Features
from trellis.export.program import Builder, ExportError, Operation, reshape
from trellis.policies.cells import GRU, LSTM, Cell
from trellis.policies.convolutions import ConvNet
from trellis.policies.networks import MLP, Network
from trellis.policies.recurrent import NoEncoder, RecurrentNet
from trellis.policies.several import SeveralNetwork

Weights = Sequence[np.ndarray]


def add_network(
    builder: Builder, network: Network, weights: Weights, features: Features, carry: int | None
) -> tuple[int, int | None]:
    """Append a network.

    Args:
        builder: Program so far.
        network: The network.
        weights: Its weights, in the order of its `shapes`.
        features: Its inputs.
        carry: What a network with memory carries; otherwise None.

    Returns:
        The outputs of the network, and the next carry.

    Raises:
        ExportError: The network has no export.
    """
    if not isinstance(network, RecurrentNet):
        return _add_layers(builder, network, weights, features), carry
    assert carry is not None
    *inner, last, bias = weights
    count = len(network.encoder.shapes)
    encoded = _add_layers(builder, network.encoder, inner[:count], features)
    if network.encoder.shapes:
        encoded = builder.node("tanh", encoded)
    carry = _add_cell(builder, network.cell, inner[count:], encoded, carry)
    units = network.cell.units
    visible = carry if units == network.carry_size else builder.columns(carry, 0, units)
    return builder.run(visible, _dense([last, bias])), carry


def _add_layers(builder: Builder, network: Network, weights: Weights, features: Features) -> int:
    """Append a network without memory."""
    if isinstance(network, SeveralNetwork):
        return _add_several(builder, network, weights, features)
    if isinstance(network, ConvNet):
        return builder.run(features.pictures[0], _convolutions(network, weights))
    if not isinstance(network, MLP | NoEncoder):
        raise ExportError(
            f"a policy with a network of class {type(network).__name__} cannot be exported:"
            " supported are MLP, ConvNet, SeveralNetwork and RecurrentNet"
        )
    assert features.rows is not None
    return builder.run(features.rows, _dense(weights))


def _add_several(
    builder: Builder, network: SeveralNetwork, weights: Weights, features: Features
) -> int:
    """Append the encoder of each input, and the dense layers that join them."""
    inputs = [Features((picture,), None) for picture in features.pictures]
    for vector in network.vectors:
        assert features.rows is not None
        rows = builder.columns(features.rows, vector.start, vector.stop)
        inputs.append(Features((), rows))
    encoded, first = [], 0
    for encoder, part in zip(network.encoders, inputs, strict=True):
        stop = first + len(encoder.shapes)
        encoded.append(
            builder.node("tanh", _add_layers(builder, encoder, weights[first:stop], part))
        )
        first = stop
    return builder.run(builder.concatenate(encoded), _dense(weights[first:]))


def _convolutions(network: ConvNet, weights: Weights) -> list[Operation]:
    """Return the convolutions of a network and its dense layers."""
    operations = []
    convolutions = 2 * len(network.channels)
    for kernel, bias in zip(weights[:convolutions:2], weights[1:convolutions:2], strict=True):
        operations += [
            Operation("convolve", kernel.transpose(3, 2, 0, 1)),
            Operation("add", bias[:, None, None]),
            Operation("maximum", np.zeros((), np.float32)),
        ]
    channels, height, width = network.pictures[-1]
    # Pictures have their channels first here and last in the network.
    first, *others = weights[convolutions:]
    first = first.reshape(height, width, channels, -1).transpose(2, 0, 1, 3)
    dense = [first.reshape(height * width * channels, -1), *others]
    return [*operations, reshape(len(dense[0])), *_dense(dense)]


def _dense(weights: Weights) -> list[Operation]:
    """Return dense layers with tanh between them."""
    operations: list[Operation] = []
    for array in weights:
        if array.ndim == 2:
            operations += [Operation("tanh")] if operations else []
            operations.append(Operation("matmul", array))
        else:
            operations.append(Operation("add", array))
    return operations


def _add_cell(builder: Builder, cell: Cell, weights: Weights, inputs: int, carry: int) -> int:
    """Append a recurrent cell and return the next carry."""
    of_input, of_memory, bias = weights
    projected = builder.run(inputs, _dense([of_input, bias]))
    memory = Operation("matmul", of_memory)
    if isinstance(cell, GRU):
        return _add_gru(builder, cell.units, projected, builder.run(carry, [memory]), carry)
    if isinstance(cell, LSTM):
        return _add_lstm(builder, cell.units, projected, memory, carry)
    raise ExportError(
        f"a policy with a cell of class {type(cell).__name__} cannot be exported: supported are"
        " GRU and LSTM"
    )


def _add_gru(builder: Builder, units: int, projected: int, remembered: int, carry: int) -> int:
    """Append h' = n + z ∘ (h − n), with the equations of `GRU`."""

    def gates(start: int, stop: int) -> tuple[int, int]:
        edges = start * units, stop * units
        return builder.columns(projected, *edges), builder.columns(remembered, *edges)

    both = builder.run(builder.node("add", *gates(0, 2)), _SIGMOID)
    keep, reset = builder.columns(both, 0, units), builder.columns(both, units, 2 * units)
    of_input, of_memory = gates(2, 3)
    seen = builder.node("multiply", reset, of_memory)
    candidate = builder.node("tanh", builder.node("add", of_input, seen))
    change = builder.node("multiply", keep, builder.node("subtract", carry, candidate))
    return builder.node("add", candidate, change)


def _add_lstm(builder: Builder, units: int, projected: int, memory: Operation, carry: int) -> int:
    """Append c' = f ∘ c + i ∘ g and h' = o ∘ tanh(c'), with the equations of `LSTM`."""

    def part(value: int, index: int) -> int:
        return builder.columns(value, index * units, (index + 1) * units)

    remembered = builder.run(part(carry, 0), [memory])
    total = builder.node("add", projected, remembered)
    gates = builder.run(builder.columns(total, 0, 3 * units), _SIGMOID)
    candidate = builder.node("tanh", part(total, 3))
    kept = builder.node("multiply", part(gates, 1), part(carry, 1))
    written = builder.node("multiply", part(gates, 0), candidate)
    cell = builder.node("add", kept, written)
    hidden = builder.node("multiply", part(gates, 2), builder.node("tanh", cell))
    return builder.concatenate([hidden, cell])


_SIGMOID = (
    Operation("multiply", np.array(0.5, np.float32)),
    Operation("tanh"),
    Operation("add", np.array(1, np.float32)),
    Operation("multiply", np.array(0.5, np.float32)),
)
"""1/(1 + e⁻ˣ) in the form that has no overflow."""
