"""Turns a policy into a straight-line program of a few array operations, which formats translate.

A program is a chain: each operation takes the value so far and at most one constant. Values have a
leading batch axis.

| operation | value x, constant c |
|---|---|
| add, subtract, multiply, matmul | x + c, x − c, x·c, x @ c |
| minimum, maximum | min(x, c), max(x, c) |
| round, tanh | to the nearest integer, halves to the even one; tanh x |
| reshape | rows of shape c |
| transpose | x with its axes in the order of c |
| mean_pool | means of blocks of c × c pixels; rows and columns that fill no block are dropped |
| cast | x with the data type of c |
| one_hot | columns x[:, c[0]] == c[1] as 0 and 1 |
| convolve | windows of 4×4 pixels with stride 2; c has shape (out, in, 4, 4) |
| argmax | index of the largest value in each of the groups of c[0], c[1], … columns |
| add_mask | x + the encoded last input, which is an action mask |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from trellis.actions import box_range
from trellis.masks import MASK_KEY, mask_size, without_mask
from trellis.pictures import PictureLayout, picture_layout
from trellis.policies.convolutions import LEVELS, WHITE, ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.gaussians import LARGEST_ACTION, SquashedGaussian, StateGaussian
from trellis.policies.masked import MASKED, MaskedNetwork
from trellis.policies.networks import MLP, Network
from trellis.policies.normalizer import (
    OBSERVATION_LIMIT,
    PICTURE_LIMIT,
    PictureStandardizer,
    Standardizer,
)
from trellis.policies.saved import SavedPolicy
from trellis.spaces import Observation, Space

OBSERVATION = "observation"
"""Name of the input. Parts of a Dict or Tuple append theirs: observation.position."""


class ExportError(ValueError):
    """The policy cannot be exported; the message says why."""

    exit_code = 2
    """Exit code of a command that fails for this reason."""


class Operation(NamedTuple):
    """One operation of a program."""

    name: str
    """Name in the table above."""
    constant: np.ndarray | None = None
    """Constant, if the operation has one."""


class Input(NamedTuple):
    """One array of an observation."""

    name: str
    space: Space
    """Box, Discrete, MultiDiscrete or MultiBinary."""
    path: tuple[str | int, ...]
    """Keys that lead to the array in the observations of a Dict or Tuple space."""
    dtype: np.dtype
    """Data type of the input: bytes for pictures, int64 for categories, otherwise float32."""
    operations: tuple[Operation, ...]
    """Operations that encode the array as features."""


@dataclass(frozen=True)
class Program:
    """A policy as a program: encoded inputs, side by side, go through one chain of operations."""

    inputs: tuple[Input, ...]
    """Arrays of an observation; if `operations` have add_mask, the last one is the action mask."""
    operations: tuple[Operation, ...]
    """Operations from features to actions of the environment."""
    shape: tuple[int, ...]
    """Shape of an action."""
    dtype: np.dtype
    """Data type of an action."""


def build_program(saved: SavedPolicy) -> Program:
    """Return the program that computes the most probable action of a policy.

    Raises:
        ExportError: The policy has a network or distribution that has no export.
    """
    weights, _ = saved.policy.unflatten(saved.theta.astype(np.float32))
    base = saved.policy.distribution
    base = base.base if isinstance(base, SquashedGaussian) else base
    if isinstance(base, StateGaussian):  # The log stds do not matter for the most probable action.
        weights[-2:] = [weight[..., : base.size] for weight in weights[-2:]]
    dtype, actions = _action(saved)
    network, masks, mask_input = saved.policy.network, [], []
    if isinstance(network, MaskedNetwork):
        network, masks = network.network, [Operation("add_mask")]
        mask_input = [_mask_input(saved.spaces[0])]
    operations = (*_normalize(saved), *_network(network, weights), *masks, *actions)
    inputs = (*_inputs(without_mask(saved.spaces[0]), layout_of(saved)), *mask_input)
    return Program(inputs, operations, saved.spaces[1].shape or (), dtype)


def has_mask(program: Program) -> bool:
    """Return whether the last input of a program is an action mask."""
    return any(operation.name == "add_mask" for operation in program.operations)


def _mask_input(space: Space) -> Input:
    """Return the input of the action mask: 0 for legal actions, `MASKED` for illegal ones."""
    assert isinstance(space, spaces.Dict)
    operations = (
        _reshape(mask_size(space)),
        Operation("subtract", np.array(1, np.float32)),
        Operation("multiply", np.array(-MASKED, np.float32)),
    )
    name = f"{OBSERVATION}.{MASK_KEY}"
    return Input(name, space[MASK_KEY], (MASK_KEY,), np.dtype(np.float32), operations)


def input_arrays(program: Program, observation: Observation) -> list[np.ndarray]:
    """Return the inputs of a program from a batch of observations."""
    arrays = []
    for part in program.inputs:
        value = observation
        for key in part.path:
            value = value[key]
        arrays.append(np.asarray(value, part.dtype))
    return arrays


def layout_of(saved: SavedPolicy) -> PictureLayout | None:
    """Return how the observations of a policy become pictures; None if they do not."""
    return picture_layout(saved.spaces[0], saved.config.policy.pictures)


def _inputs(
    space: Space, layout: PictureLayout | None, path: tuple[str | int, ...] = ()
) -> Iterator[Input]:
    """Yield the arrays of an observation in the order in which the encoder joins them."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _inputs(part, None, (*path, key))
        return
    if isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _inputs(part, None, (*path, index))
        return
    name = ".".join([OBSERVATION, *map(str, path)])
    if layout:
        yield Input(name, space, path, np.dtype(np.uint8), tuple(_picture(layout)))
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes, starts = categories(space)
        columns = np.repeat(np.arange(len(sizes)), sizes)
        values = np.concatenate(
            [start + np.arange(size) for size, start in zip(sizes, starts, strict=True)]
        )
        operations = (_reshape(len(sizes)), Operation("one_hot", np.stack([columns, values])))
        yield Input(name, space, path, np.dtype(np.int64), operations)
    else:
        flat = _reshape(math.prod(space.shape or ()))
        yield Input(name, space, path, np.dtype(np.float32), (flat,))


def _picture(layout: PictureLayout) -> Iterator[Operation]:
    """Yield the operations from an observation to a picture (channels, height, width)."""
    yield Operation("cast", np.zeros((), np.float32))
    order = (0, *(axis + 1 for axis in layout.axes))
    if order != tuple(range(len(order))):
        yield Operation("transpose", np.array(order))
    if layout.ordered != layout.whole:
        yield _reshape(*layout.whole)
    if layout.block > 1:
        yield Operation("mean_pool", np.array(layout.block))
        # Halves are rounded up. A quarter of the smallest difference decides them, so that rounding
        # errors of a runtime cannot.
        yield Operation("add", np.array(0.25 / layout.block**2, np.float32))
        yield Operation("round")


def categories(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[list[int], list[int]]:
    """Return the size and the first value of each factor."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    starts = np.broadcast_to(space.start, space.nvec.shape)
    return [int(n) for n in space.nvec.ravel()], [int(start) for start in starts.ravel()]


def _normalize(saved: SavedPolicy) -> list[Operation]:
    """Return the operations from features to the values that the first layer multiplies."""
    normalizer, pictures = saved.normalizer, layout_of(saved)
    if isinstance(normalizer, Standardizer | PictureStandardizer):
        operations = [
            Operation("subtract", normalizer.mean),
            Operation("multiply", normalizer.factor),
        ]
        if pictures:
            limit = [Operation("round"), *_clip(-PICTURE_LIMIT, PICTURE_LIMIT)]
            return [*operations, *limit, Operation("multiply", np.array(1 / LEVELS, np.float32))]
        return [*operations, *_clip(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)]
    return [Operation("multiply", np.array(1 / WHITE, np.float32))] if pictures else []


def _network(network: Network, weights: Sequence[np.ndarray]) -> list[Operation]:
    """Return the layers of a network."""
    if isinstance(network, MLP):
        return _dense(weights)
    if not isinstance(network, ConvNet):
        raise ExportError(
            f"a policy with a network of class {type(network).__name__} cannot be exported:"
            " supported are MLP and ConvNet"
        )
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
    return [*operations, _reshape(len(dense[0])), *_dense(dense)]


def _dense(weights: Sequence[np.ndarray]) -> list[Operation]:
    operations: list[Operation] = []
    for array in weights:
        if array.ndim == 2:
            operations += [Operation("tanh")] if operations else []
            operations.append(Operation("matmul", array))
        else:
            operations.append(Operation("add", array))
    return operations


def _action(saved: SavedPolicy) -> tuple[np.dtype, list[Operation]]:
    """Return the operations from the network's outputs to actions, and their data type."""
    distribution, space = saved.policy.distribution, saved.spaces[1]
    if isinstance(distribution, Categoricals):
        operations = [Operation("argmax", np.array(distribution.sizes))]
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            starts = np.array(categories(space)[1])
            operations += [Operation("add", starts)] if starts.any() else []
        return np.dtype(np.int64), [*operations, _reshape(*(space.shape or ()))]
    squashed = isinstance(distribution, SquashedGaussian)
    distribution = distribution.base if squashed else distribution
    if not isinstance(distribution, DiagGaussian) or not isinstance(space, spaces.Box):
        raise ExportError(
            f"a policy with a distribution of class {type(distribution).__name__} cannot be"
            " exported: supported are Gaussians and Categoricals"
        )
    low, high, unit, middle, half = box_range(space)
    dtype = np.result_type(np.float32, low)
    operations = [_reshape(*space.shape), Operation("cast", np.zeros((), dtype))]
    if squashed:
        limits = _clip(-LARGEST_ACTION, LARGEST_ACTION)
        operations = [Operation("tanh"), *limits, *operations]
    if unit is not None:
        operations += [
            *_clip(-unit, unit, dtype),
            Operation("multiply", half.astype(dtype)),
            Operation("add", middle.astype(dtype)),
        ]
    return dtype, [*operations, *_clip(low, high, dtype)]


def _clip(
    low: np.ndarray | float, high: np.ndarray | float, dtype: np.dtype | type = np.float32
) -> list[Operation]:
    return [
        Operation("maximum", np.asarray(low, dtype)),
        Operation("minimum", np.asarray(high, dtype)),
    ]


def _reshape(*shape: int) -> Operation:
    return Operation("reshape", np.array(shape, np.int64))
