"""Encodes observations in a program: arrays of the environment become the inputs of a network.

It does what `SavedPolicy` does with an observation: pictures are ordered and reduced, categories
become one-hot vectors, and everything is standardized with the statistics of the run.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from trellis.export.program import Builder, Input, Operation, clip, reshape
from trellis.masks import MASK_KEY, mask_size, parts_of, without_mask
from trellis.pictures import PictureLayout, picture_layout
from trellis.policies.convolutions import LEVELS, WHITE
from trellis.policies.masked import MASKED
from trellis.policies.normalizer import (
    OBSERVATION_LIMIT,
    PICTURE_LIMIT,
    Normalizer,
    PictureStandardizer,
    Standardizer,
    normalizers_of,
)
from trellis.policies.saved import SavedPolicy
from trellis.spaces import SeveralFeatures, Space, observation_encoder

OBSERVATION = "observation"
"""Name of the input. Parts of a Dict or Tuple append theirs: observation.position."""
MASK = f"{OBSERVATION}.{MASK_KEY}"
"""Name of the input of an action mask."""


class Part(NamedTuple):
    """One array of an observation, and how it is encoded."""

    input: Input
    space: Space
    """Box, Discrete, MultiDiscrete or MultiBinary."""
    layout: PictureLayout | None
    """How the array becomes a picture; None if it becomes features."""
    operations: tuple[Operation, ...]
    """Operations that encode the array."""


class Features(NamedTuple):
    """Values that a network takes."""

    pictures: tuple[int, ...]
    """Standardized pictures (channels, height, width)."""
    rows: int | None
    """All other features side by side; None if there are none."""


def observation_arrays(saved: SavedPolicy) -> list[Part]:
    """Return the arrays of an observation in the order in which the encoder joins them.

    The action mask is not among them.
    """
    space, rule = saved.spaces[0], saved.config.policy.pictures
    # Inside of a Dict or Tuple there are pictures by the rule "convolve" only.
    nested = isinstance(space, spaces.Dict | spaces.Tuple)
    rule = "flatten" if nested and rule != "convolve" else rule
    parts = []
    for path, part in _leaves(without_mask(space)):
        name, layout = ".".join([OBSERVATION, *map(str, path)]), picture_layout(part, rule)
        dtype, operations = _encode(part, layout)
        array = Input(name, part.shape or (), np.dtype(dtype), path)
        parts.append(Part(array, part, layout, tuple(operations)))
    return parts


def mask_arrays(space: Space) -> list[Input]:
    """Return the input of the action mask, if observations have one."""
    if not mask_size(space):
        return []
    assert isinstance(space, spaces.Dict)
    return [Input(MASK, space[MASK_KEY].shape or (), np.dtype(np.float32), (MASK_KEY,))]


def add_mask(builder: Builder, space: Space) -> int | None:
    """Append the code of the action mask: 0 for legal actions, `MASKED` for illegal ones."""
    if not mask_size(space):
        return None
    operations = (
        reshape(mask_size(space)),
        Operation("subtract", np.array(1, np.float32)),
        Operation("multiply", np.array(-MASKED, np.float32)),
    )
    return builder.run(builder.input(MASK), operations)


def add_features(builder: Builder, saved: SavedPolicy, parts: Sequence[Part]) -> Features:
    """Append the operations from observations to the inputs of the network."""
    normalizers = [saved.normalizer]
    several, _ = observation_encoder(saved.spaces[0], saved.config.policy.pictures)
    if isinstance(several, SeveralFeatures):
        shapes = [part.shape[1:] for part in several.pictures]
        normalizers = normalizers_of(saved.normalizer, shapes)
    pictures, rows = [], []
    for part in parts:
        value = builder.run(builder.input(part.input.name), part.operations)
        if part.layout is None:
            rows.append(value)
        else:
            normalize = _normalize(normalizers[len(pictures)], picture=True)
            pictures.append(builder.run(value, normalize))
    if not rows:
        return Features(tuple(pictures), None)
    joined = builder.concatenate(rows)
    return Features(tuple(pictures), builder.run(joined, _normalize(normalizers[-1])))


def categories(space: spaces.Discrete | spaces.MultiDiscrete) -> tuple[list[int], list[int]]:
    """Return the size and the first value of each factor."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    starts = np.broadcast_to(space.start, space.nvec.shape)
    return [int(n) for n in space.nvec.ravel()], [int(start) for start in starts.ravel()]


def _leaves(space: Space, path: tuple = ()) -> Iterator[tuple[tuple[str | int, ...], Space]]:
    """Yield the paths and spaces of the arrays in an observation."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from _leaves(part, (*path, key))
    else:
        yield path, space


def _encode(space: Space, layout: PictureLayout | None) -> tuple[type, list[Operation]]:
    """Return the data type of an array and the operations that encode it."""
    if layout:
        return np.uint8, [*_picture(layout)]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes, starts = categories(space)
        columns = np.repeat(np.arange(len(sizes)), sizes)
        values = np.concatenate(
            [start + np.arange(size) for size, start in zip(sizes, starts, strict=True)]
        )
        return np.int64, [reshape(len(sizes)), Operation("one_hot", np.stack([columns, values]))]
    return np.float32, [reshape(math.prod(space.shape or ()))]


def _picture(layout: PictureLayout) -> Iterator[Operation]:
    """Yield the operations from an observation to a picture (channels, height, width)."""
    yield Operation("cast", np.zeros((), np.float32))
    order = (0, *(axis + 1 for axis in layout.axes))
    if order != tuple(range(len(order))):
        yield Operation("transpose", np.array(order))
    if layout.ordered != layout.whole:
        yield reshape(*layout.whole)
    if layout.block > 1:
        yield Operation("mean_pool", np.array(layout.block))
        # Halves are rounded up. A quarter of the smallest difference decides them, so that rounding
        # errors of a runtime cannot.
        yield Operation("add", np.array(0.25 / layout.block**2, np.float32))
        yield Operation("round")


def _normalize(normalizer: Normalizer, *, picture: bool = False) -> list[Operation]:
    """Return the operations from features to the values that the first layer multiplies."""
    if isinstance(normalizer, Standardizer | PictureStandardizer):
        operations = [
            Operation("subtract", normalizer.mean),
            Operation("multiply", normalizer.factor),
        ]
        if picture:
            limit = [Operation("round"), *clip(-PICTURE_LIMIT, PICTURE_LIMIT)]
            return [*operations, *limit, Operation("multiply", np.array(1 / LEVELS, np.float32))]
        return [*operations, *clip(-OBSERVATION_LIMIT, OBSERVATION_LIMIT)]
    return [Operation("multiply", np.array(1 / WHITE, np.float32))] if picture else []
