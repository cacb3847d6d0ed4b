"""Tests that spaces can be read from checkpoints of the current and of the first format."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from trellis.space_json import SpaceFormatError, space_from_json, space_from_text, space_to_json

PLAIN = [
    spaces.Box(-np.inf, np.inf, (11,), np.float64),
    spaces.Box(-0.4, 0.4, (17,), np.float32),
    spaces.Box(0, 255, (4, 52, 40), np.uint8),
    spaces.Discrete(4),
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([3, 3, 2]),
]
OTHERS = [
    *(spaces.Box(0, 1000, (3,), dtype) for dtype in (np.int16, np.uint16, np.uint32)),
    spaces.Box(0, 2**64 - 1, (1,), np.uint64),
    spaces.Box(np.float32([-1, -2]), np.float32([1, np.inf])),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
    spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple([spaces.Box(0, 1, (2,))])),
]


def same(one, other):
    """Return whether two spaces are equal, with the same bounds bit for bit."""
    bounds = [(getattr(s, "low", 0), getattr(s, "high", 0)) for s in (one, other)]
    return one == other and all(map(np.array_equal, *bounds))


@pytest.mark.parametrize("space", PLAIN + OTHERS, ids=str)
def test_a_space_survives_json(space):
    text = json.dumps(space_to_json(space))
    assert same(space_from_json(json.loads(text)), space)


def test_the_order_of_a_dict_is_kept():
    space = spaces.Dict(z=spaces.Discrete(2), a=spaces.Discrete(3))
    assert list(space.spaces) == ["z", "a"]  # Gymnasium sorts the keys of a dict alone.
    assert list(space_from_json(space_to_json(space)).spaces) == list(space.spaces)


def test_pictures_are_described_in_a_few_bytes():
    assert len(json.dumps(space_to_json(PLAIN[2]))) < 100


@pytest.mark.parametrize("space", PLAIN, ids=str)
def test_the_text_of_the_first_checkpoints_is_read(space):
    assert same(space_from_text(str(space)), space)


def test_only_bounds_of_observations_may_be_unknown():
    box = spaces.Box(np.float32([-1, -8]), np.float32([1, 8]))
    read = space_from_text(str(box), bounds_matter=False)
    assert (read.shape, read.dtype) == (box.shape, box.dtype)
    with pytest.raises(SpaceFormatError, match="does not describe its space completely"):
        space_from_text(str(box))


@pytest.mark.parametrize(
    "text", ["", "Box(1)", "Dict('a': Discrete(2))", "__import__('os').system('x')", "Discrete(n)"]
)
def test_other_texts_are_errors(text):
    with pytest.raises(SpaceFormatError):
        space_from_text(text)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"box": [2]},
        {"discrete": "x", "start": 0},
        {"box": [1], "low": 0, "high": 1, "dtype": "O"},
    ],
)
def test_other_values_are_errors(values):
    with pytest.raises(SpaceFormatError, match="do not describe a space"):
        space_from_json(values)


def test_a_kind_that_is_not_supported_has_no_description():
    assert space_to_json(spaces.Text(5)) is None
    assert space_to_json(spaces.Dict(a=spaces.Text(5))) is None
