"""Defines programs: a policy as a list of a few array operations, which formats translate.

Values are numbered: first the inputs of a program, then the result of each of its nodes. A node
takes earlier values x, y, … and at most one constant c. Values have a leading batch axis.

| operation | result |
|---|---|
| add, subtract, multiply | x + y, x − y, x·y; with a constant, that is y |
| matmul | x @ c |
| minimum, maximum | min(x, c), max(x, c) |
| round, tanh | to the nearest integer, halves to the even one; tanh x |
| reshape | rows of shape c |
| transpose | x with its axes in the order of c |
| columns | x[:, c[0]:c[1]] |
| concatenate | x, y, … side by side |
| mean_pool | means of blocks of c × c pixels; rows and columns that fill no block are dropped |
| cast | x with the data type of c |
| one_hot | columns x[:, c[0]] == c[1] as 0 and 1 |
| convolve | windows of 4×4 pixels with stride 2; c has shape (out, in, 4, 4) |
| argmax | index of the largest value in each of the groups of c[0], c[1], … columns |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trellis.spaces import Observation

CARRY, NEXT_CARRY = "carry", "next_carry"
"""Names of the input and of the output of what a policy with memory carries."""


class ExportError(ValueError):
    """The policy cannot be exported; the message says why."""

    exit_code = 2
    """Exit code of a command that fails for this reason."""


class Operation(NamedTuple):
    """An operation on one value."""

    name: str
    """Name in the table above."""
    constant: np.ndarray | None = None
    """Constant, if the operation has one."""


class Node(NamedTuple):
    """One operation of a program."""

    name: str
    """Name in the table above."""
    values: tuple[int, ...]
    """Numbers of the values that it takes."""
    constant: np.ndarray | None
    """Constant, if the operation has one."""


class Input(NamedTuple):
    """One array of an observation, or the carry."""

    name: str
    shape: tuple[int, ...]
    """Shape of one row."""
    dtype: np.dtype
    """Data type of the input: bytes for pictures, int64 for categories, otherwise float32."""
    path: tuple[str | int, ...] = ()
    """Keys that lead to the array in the observations of a Dict or Tuple space."""


class Output(NamedTuple):
    """One array of an action, or the carry of the next step."""

    name: str
    shape: tuple[int, ...]
    """Shape of one row."""
    dtype: np.dtype
    """Data type of the output."""
    value: int
    """Number of the value."""
    path: tuple[str | int, ...] = ()
    """Keys that lead to the array in the actions of a Dict or Tuple space."""


@dataclass(frozen=True)
class Program:
    """A policy as a program from observations to the most probable actions."""

    inputs: tuple[Input, ...]
    """Arrays of an observation; the last input of a policy with memory is its carry."""
    nodes: tuple[Node, ...]
    """Operations in the order in which they run."""
    outputs: tuple[Output, ...]
    """Arrays of an action; the last output of a policy with memory is its next carry."""

    @property
    def has_memory(self) -> bool:
        """Whether the program takes and returns a carry."""
        return self.inputs[-1].name == CARRY


class Builder:
    """Appends operations to a program.

    Args:
        inputs: Inputs of the program, whose values are 0, 1, ….
    """

    def __init__(self, inputs: Iterable[Input]):
        self.inputs = tuple(inputs)
        self.nodes: list[Node] = []

    def input(self, name: str) -> int:
        """Return the value of an input."""
        return [each.name for each in self.inputs].index(name)

    def node(self, name: str, *values: int, constant: np.ndarray | None = None) -> int:
        """Append an operation on some values and return its result."""
        self.nodes.append(Node(name, values, constant))
        return len(self.inputs) + len(self.nodes) - 1

    def run(self, value: int, operations: Iterable[Operation]) -> int:
        """Append operations, each on the result of the one before, and return the last result."""
        for name, constant in operations:
            value = self.node(name, value, constant=constant)
        return value

    def concatenate(self, values: Sequence[int]) -> int:
        """Return values side by side."""
        return values[0] if len(values) == 1 else self.node("concatenate", *values)

    def columns(self, value: int, start: int, stop: int) -> int:
        """Return some columns of a value."""
        return self.node("columns", value, constant=np.array([start, stop]))


def input_arrays(
    program: Program, observation: Observation, carry: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return the inputs of a program from a batch of observations, and from the carry."""
    arrays = []
    for part in program.inputs:
        value: Any = carry if part.name == CARRY else observation
        for key in part.path:
            value = value[key]
        arrays.append(np.asarray(value, part.dtype))
    return arrays


def clip(
    low: np.ndarray | float, high: np.ndarray | float, dtype: np.dtype | type = np.float32
) -> list[Operation]:
    """Return the operations that limit a value."""
    return [
        Operation("maximum", np.asarray(low, dtype)),
        Operation("minimum", np.asarray(high, dtype)),
    ]


def reshape(*shape: int) -> Operation:
    """Return the operation that gives rows a shape."""
    return Operation("reshape", np.array(shape, np.int64))
