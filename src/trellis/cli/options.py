"""How the texts of options become values, where tyro alone would be too strict."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def registry() -> ConstructorRegistry:
    """A registry with the rules of this module, to which a caller may add."""
    rules = ConstructorRegistry()
    rules.primitive_rule(key_values)
    rules.primitive_rule(whole_number)
    return rules


def key_values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Options of the environment: `--env-options gravity=5 sutton_barto_reward=true`."""
    if getattr(info.type, "__origin__", None) is not Mapping:
        return None

    def read(texts: list[str]) -> dict[str, Any]:
        values = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise ValueError(f"an option of the environment is NAME=VALUE, got {text!r}")
            try:
                values[name] = json.loads(value)
            except json.JSONDecodeError:
                values[name] = value
        return values

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE ...",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [f"{k}={json.dumps(v)}" for k, v in value.items()],
    )


def whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`--steps 1e6` as well as 1000000 and 1_000_000."""
    if info.type is not int:
        return None

    def read(texts: list[str]) -> int:
        with contextlib.suppress(ValueError):
            return int(texts[0])
        with contextlib.suppress(ValueError):
            if float(texts[0]).is_integer():
                return int(float(texts[0]))
        raise ValueError(f"{texts[0]!r} is not a whole number")

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )
