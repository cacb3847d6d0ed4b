"""Check settings: their values when they are created, their types when they are read from JSON.

A constraint is the metadata of a field: its words for the error message, and a check. `Checked`
applies the constraints: `max_kl must be > 0, got -0.01`. `read_settings` builds nested dataclasses
from JSON, and names a setting in full: `step.max_kl must be a number, got '0.1'`.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from trellis.strict_json import shown

Settings = TypeVar("Settings")
Constraint = dict[str, Callable[[Any], bool]]
"""Words that say what a value must be, and a check whether it is."""

AT_LEAST_1: Constraint = {"at least 1": lambda value: value >= 1}
AT_LEAST_4: Constraint = {"at least 4": lambda value: value >= 4}
POSITIVE: Constraint = {"> 0": lambda value: value > 0}
NOT_NEGATIVE: Constraint = {">= 0": lambda value: value >= 0}
BETWEEN_0_AND_1: Constraint = {"between 0 and 1": lambda value: 0 < value < 1}
FRACTION: Constraint = {"in (0, 1]": lambda value: 0 < value <= 1}
UNIT_INTERVAL: Constraint = {"in [0, 1]": lambda value: 0 <= value <= 1}
POSITIVE_SIZES: Constraint = {"sizes of at least 1": lambda sizes: all(n >= 1 for n in sizes)}
ENV_ID: Constraint = {"the id of an environment": bool}
SEED: Constraint = {"at least 0 and less than 2^63": lambda value: 0 <= value < 2**63}

JSON_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    type(None): "null",
}
"""JSON types as error messages name them."""


def one_of(names: Sequence[str]) -> Constraint:
    """Return the constraint that a value is one of these names."""
    return {f"one of {', '.join(names)}": names.__contains__}


class Checked:
    """Base of settings that are validated when created, by the metadata and types of their fields.

    A setting whose default is None may be None.
    """

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(cast(Any, self)):
            value, constraints = getattr(self, setting.name), setting.metadata
            if get_origin(setting.type) is Literal:
                constraints = one_of(get_args(setting.type))
            if value is None and setting.default is None:
                continue
            if isinstance(value, float):
                whole = setting.type is int or get_args(setting.type) == (int, type(None))
                _require(not whole, setting.name, JSON_NAMES[int], value)
                _require(math.isfinite(value), setting.name, "a finite number", value)
            for what, is_valid in constraints.items():
                try:
                    valid = is_valid(value)
                except TypeError:  # A value of another type, such as "0.1" > 0.
                    valid = False
                _require(valid, setting.name, what, value)


def read_settings(kind: type[Settings], values: Any, name: str = "the configuration") -> Settings:
    """Return the settings that JSON values describe.

    Args:
        kind: Dataclass to build. Its fields may be dataclasses too.
        values: JSON object with the values by name. A missing setting has its default.
        name: Name of the object in error messages.

    Raises:
        ValueError: A setting is unknown, missing, of the wrong type or invalid.
    """
    return _read_object(kind, values, name, prefix="")


def _read_object(kind: Any, values: Any, name: str, prefix: str) -> Any:
    """Build a dataclass; `prefix` comes before the names of its settings in errors."""
    _require(isinstance(values, Mapping), name, "a JSON object", values)
    hints = get_type_hints(kind)
    for unknown in sorted(values.keys() - hints.keys()):
        near = difflib.get_close_matches(unknown[:100], hints, n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else f"it has {', '.join(hints)}"
        found = prefix + shown(unknown, quotes=False)
        raise ValueError(f"{name} has no setting {found}; {hint}")
    for field in dataclasses.fields(kind):
        optional = field.default, field.default_factory
        if field.name not in values and optional == (dataclasses.MISSING, dataclasses.MISSING):
            raise ValueError(f"{name} has no {prefix}{field.name}; add it")
    return kind(
        **{key: _read(f"{prefix}{key}", value, hints[key]) for key, value in values.items()}
    )


def _read(name: str, value: Any, hint: Any) -> Any:
    """Return a JSON value as a setting of type `hint`; a list becomes a tuple."""
    if dataclasses.is_dataclass(hint):
        return _read_object(hint, value, name, f"{name}.")
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        _require(value in allowed, name, f"one of {', '.join(allowed)}", value)
    elif get_origin(hint) is tuple:
        whole = isinstance(value, list | tuple) and all(type(item) is int for item in value)
        _require(whole, name, "a list of whole numbers", value)
        return tuple(value)
    elif get_origin(hint) is Mapping:
        _require(isinstance(value, Mapping), name, "a JSON object", value)
    else:
        kinds = get_args(hint) or (hint,)  # One type, or a union of one with None.
        fits = type(value) in kinds or (float in kinds and type(value) is int)
        _require(fits, name, " or ".join(JSON_NAMES[kind] for kind in kinds), value)
    return value


def _require(fits: bool, name: str, what: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{name} must be {what}, got {shown(value)}")
