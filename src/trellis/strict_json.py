"""Read JSON that nobody vouches for: no extensions of Python, bounded numbers, bounded depth.

Python's own reader accepts NaN, turns 1e999 into infinity, keeps the last of two equal names, and
raises `RecursionError` for deep nesting. Here each of these is a `ValueError` with a clear message.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

MAX_DEPTH = 32
"""Deepest nesting of objects and lists."""
MAX_CONTAINERS = 200_000
"""Largest number of objects and lists in one file."""
WIDEST_INTEGER = 2**128
"""Bound of integers by default. Checkpoints hold the 128-bit states of random generators."""
INT64 = 2**63
"""Bound of integers that are settings or metrics."""

_NON_FINITE = "$float"


def parse(data: bytes, *, integers_below: int = WIDEST_INTEGER) -> Any:
    """Return the value that UTF-8 encoded JSON describes.

    Args:
        data: The text. The caller bounds its size.
        integers_below: Bound of the absolute value of integers.

    Raises:
        ValueError: The text is not JSON, or exceeds a limit; the message says where or which.
    """
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise ValueError(f"it has more than {MAX_CONTAINERS:,} objects and lists")
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_bounded(integers_below),
            object_pairs_hook=_distinct,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _require_depth(value)
    return value


def digest(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON values in canonical form: sorted names, no white space."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def shown(value: Any, length: int = 80, *, quotes: bool = True) -> str:
    """Return a short text for a value in a message: one line, without control characters.

    Args:
        value: Any value, also one that a file holds.
        length: Largest number of characters.
        quotes: Whether texts are in quotes.
    """
    try:
        text = repr(value)
    except ValueError:  # An integer of more digits than Python prints.
        text = f"a value of type {type(value).__name__}"
    if not quotes and isinstance(value, str):
        text = text[1:-1]
    return text if len(text) <= length else f"{text[: length - 1]}…"


def encode_values(value: Any, where: str) -> Any:
    """Return `value` as plain JSON; NaN and infinities become {"$float": "nan"} and so on."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NON_FINITE: repr(value)}
    if isinstance(value, list | tuple):
        return [encode_values(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        bad = [key for key in value if not isinstance(key, str) or key == _NON_FINITE]
        if bad:
            raise TypeError(f"{where} has the key {bad[0]!r}, which a checkpoint cannot hold")
        return {key: encode_values(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is a {type(value).__name__}, which a checkpoint cannot hold")


def decode_values(value: Any) -> Any:
    """Return what `encode_values` was given."""
    if isinstance(value, list):
        return [decode_values(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_NON_FINITE}:
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value[_NON_FINITE]]
        return {key: decode_values(item) for key, item in value.items()}
    return value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {shown(text)} is out of range")
    return value


def _bounded(limit: int) -> Callable[[str], int]:
    longest = len(str(limit)) + 1

    def read(text: str) -> int:
        if len(text) > longest:
            raise ValueError(f"an integer of {len(text)} digits is out of range")
        value = int(text)
        if not -limit < value < limit:
            raise ValueError(f"the integer {text} is out of range")
        return value

    return read


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(twice)} appears twice in one object")
    return values


def _require_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
