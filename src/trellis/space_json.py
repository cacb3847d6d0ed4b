"""Writes Gymnasium spaces as plain JSON values, so that a saved policy loads without a simulator.

Older checkpoints hold the text of each space (`str(space)`) instead. `space_from_text` reads that
text where it is complete.
"""

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis.strict_json import shown

MOST_VALUES = 1 << 24
"""Largest number of values in an observation or action that is read from a file."""
LONGEST_TEXT = 1 << 16
"""Largest number of characters of a space's text that is read."""
BOUNDS = ("low", "high")
BOX_DTYPES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""Data types that a Box may have in a file."""


class SpaceFormatError(ValueError):
    """The text or the JSON values do not describe a space."""


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any] | None:
    """Return a description of `space` in JSON values, or None if its kind is not supported.

    Example:
        >>> space_to_json(spaces.Discrete(3))
        {'discrete': 3, 'start': 0}
    """
    match space:
        case spaces.Box():
            bounds = {name: _bound(getattr(space, name)) for name in BOUNDS}
            return {"box": list(space.shape), **bounds, "dtype": np.dtype(space.dtype).name}
        case spaces.Discrete():
            return {"discrete": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {
                "multi_discrete": space.nvec.tolist(),
                "start": np.asarray(space.start).tolist(),
            }
        case spaces.MultiBinary():
            return {"multi_binary": space.n if isinstance(space.n, int) else list(space.shape)}
        case spaces.Dict():
            parts = {name: space_to_json(part) for name, part in space.spaces.items()}
            return None if None in parts.values() else {"dict": [list(p) for p in parts.items()]}
        case spaces.Tuple():
            parts = [space_to_json(part) for part in space.spaces]
            return None if None in parts else {"tuple": parts}
        case _:
            return None


def same_layout(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Return whether two spaces have the same structure and shapes; bounds may differ."""
    return _structure(space_to_json(one)) == _structure(space_to_json(other))


def _structure(value: Any) -> Any:
    if isinstance(value, dict):
        return value["box"] if "box" in value else {k: _structure(v) for k, v in value.items()}
    return [_structure(item) for item in value] if isinstance(value, list) else value


def space_from_json(values: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that `space_to_json` described.

    Raises:
        SpaceFormatError: The values are not such a description.
    """
    try:
        return _build(values)
    except (KeyError, TypeError, ValueError, AssertionError, OverflowError) as error:
        raise SpaceFormatError(f"these values do not describe a space: {shown(values)}") from error


def _build(values: Mapping[str, Any]) -> spaces.Space[Any]:
    if "box" in values:
        shape, dtype = _shape(values["box"]), values["dtype"]
        if dtype not in BOX_DTYPES:
            raise ValueError(dtype)
        low, high = (np.broadcast_to(np.array(values[name], dtype), shape) for name in BOUNDS)
        return spaces.Box(low.copy(), high.copy(), shape, np.dtype(dtype).type)
    if "discrete" in values:
        return spaces.Discrete(values["discrete"], start=values["start"])
    if "multi_discrete" in values:
        return spaces.MultiDiscrete(values["multi_discrete"], start=values["start"])
    if "multi_binary" in values:
        size = values["multi_binary"]
        return spaces.MultiBinary(_shape([size])[0] if isinstance(size, int) else _shape(size))
    if "dict" in values:
        # A list of pairs, because gymnasium sorts the keys of a dict, and their order is that of θ.
        return spaces.Dict([(name, _build(part)) for name, part in values["dict"]])
    return spaces.Tuple([_build(part) for part in values["tuple"]])


def _shape(lengths: Any) -> tuple[int, ...]:
    """Return a shape from a list; raise if it is not one, or if the space would be too large."""
    shape = tuple(lengths)
    if not all(type(length) is int and length >= 0 for length in shape):
        raise TypeError(shape)
    if len(shape) > 16 or math.prod(max(length, 1) for length in shape) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return shape


def space_from_text(text: str, *, bounds_matter: bool = True) -> spaces.Space[Any]:
    """Return the space whose `str` is `text`: a Box with equal bounds, or a discrete space.

    Args:
        text: What `str(space)` returned.
        bounds_matter: Whether the bounds of a Box are needed. If not, as for observations, a Box
            whose bounds differ by dimension becomes unbounded.

    Raises:
        SpaceFormatError: The text is incomplete, or describes another kind of space.
    """
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        raise SpaceFormatError(f"{shown(text)} does not describe a space")
    box = re.fullmatch(r"Box\(\[.*, \(([\d, ]*)\), (float\d+)\)", text, re.DOTALL)
    if box is not None and not bounds_matter:
        text = f"Box(-inf, inf, ({box[1]}), {box[2]})"
    try:
        # NumPy writes the sizes of a MultiDiscrete without commas.
        text = re.sub(r"(?<=\d) +(?=\d)", ", ", text)
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(text)
        values = [_literal(node) for node in call.args]
        named = {str(word.arg): _literal(word.value) for word in call.keywords}
        if call.func.id == "Box":
            low, high, shape, dtype = values
            return _build({"box": shape, "low": low, "high": high, "dtype": dtype})
        kinds = {"Discrete": spaces.Discrete, "MultiDiscrete": spaces.MultiDiscrete}
        return kinds[call.func.id](*values, **named)
    except (SyntaxError, LookupError, ArithmeticError, ValueError, TypeError) as error:
        raise SpaceFormatError(f"{shown(text)} does not describe its space completely") from error
    except (AssertionError, MemoryError, RecursionError) as error:
        raise SpaceFormatError(f"{shown(text)} does not describe a space") from error


def _literal(node: ast.expr) -> Any:
    """Return the value of a node: a number, a tuple of numbers, or the name of a dtype."""
    if isinstance(node, ast.Name):
        return math.inf if node.id == "inf" else node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_literal(node.operand)
    return ast.literal_eval(node)


def _bound(values: np.ndarray) -> Any:
    """Return one number if all are equal, which keeps pictures small, else a nested list."""
    if not values.size:
        return 0
    first = values.flat[0]
    return first.item() if np.all(values == first) else values.tolist()
