"""Reading the command line: commands, their help, and values that tyro reads too strictly."""

import contextlib
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from trellis.cli.errors import UsageError

Entry = TypeVar("Entry")
Result = TypeVar("Result")


def find_entry(table: Mapping[str, Entry], name: str, kind: str, program: str) -> Entry:
    """Return the entry with this name, or raise with a hint at a similar one."""
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"there is no {kind} {name!r}.{hint} `{program} --help` lists them.")


def summaries(about: Mapping[str, str]) -> list[str]:
    """Return a line of help for each name, with the first line of its text."""
    width = max(11, *(len(name) + 2 for name in about))
    return [f"  {name:<{width}}{text.splitlines()[0]}" for name, text in about.items()]


def read(function: Callable[..., Result], program: str, args: Sequence[str]) -> Result:
    """Call a function, or create a dataclass, with the options in `args`."""
    flags = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(function, prog=program, args=list(args), registry=registry(), config=flags)


def registry() -> ConstructorRegistry:
    """Return a registry with the rules of this module, to which a caller may add."""
    rules = ConstructorRegistry()
    rules.primitive_rule(key_values)
    rules.primitive_rule(whole_number)
    return rules


def key_values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Read options of the environment: `--env-options gravity=5 sutton_barto_reward=true`."""
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
    """Read whole numbers as 1000000, 1_000_000 or 1e6."""
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
