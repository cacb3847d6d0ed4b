"""Read the command line with tyro: commands, help texts, values and one-line errors.

tyro turns functions and dataclasses into options. This module adds rules for values: 1e6 is a whole
number, gravity=5 an environment option. It shows defaults in words, and turns the error boxes of
tyro into one line that says what to do next.
"""

import dataclasses
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from trellis.cli.errors import UsageError
from trellis.cli.parse_errors import one_line_errors

Entry = TypeVar("Entry")
Result = TypeVar("Result")
DEFAULT = " Default: "
"""Start of the last sentence of a help text, which says what the default None means."""


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


def read(kind: Callable[..., Result], program: str, args: Sequence[str]) -> Result:
    """Call a function, or create a dataclass, with the options in `args`."""
    rules = registry()
    if isinstance(kind, type):
        rules.struct_rule(lambda info: spec if info.type is kind else None)
        spec = StructConstructorSpec(kind, tuple(map(as_option, fields_of(kind))))
    flags = (tyro.conf.FlagCreatePairsOff,)
    return parse(kind, program, args, rules, config=flags)


def parse(
    kind: Callable[..., Result],
    program: str,
    args: Sequence[str],
    rules: ConstructorRegistry,
    **tyro_options: Any,
) -> Result:
    """Call `tyro.cli`, with its errors as a `UsageError` of one line."""

    def flags() -> list[str]:
        shared = {k: v for k, v in tyro_options.items() if k in ("config", "default")}
        parser = tyro.extras.get_parser(kind, prog=program, registry=rules, **shared)
        return [flag for action in parser._actions for flag in action.option_strings]

    with one_line_errors(flags):
        return tyro.cli(kind, prog=program, args=list(args), registry=rules, **tyro_options)


def fields_of(kind: type, default: Any = tyro.MISSING_NONPROP) -> tuple[StructFieldSpec, ...]:
    """Return the fields of a dataclass as tyro reads them, with the defaults of an instance."""
    spec = ConstructorRegistry.get_struct_spec(StructTypeInfo.make(kind, default, False))
    assert isinstance(spec, StructConstructorSpec)
    return spec.fields


def as_option(field: StructFieldSpec, **conf: Any) -> StructFieldSpec:
    """Return a field whose help is one paragraph and ends with its default in words.

    Args:
        field: Field of a dataclass. If its default is None, the last sentence of its help says
            what that means: "Default: no limit."
        **conf: Arguments for `tyro.conf.arg`.
    """

    def parts() -> tuple[str, str]:  # When help is printed: finding the docstrings takes time.
        text = field.helptext() if callable(field.helptext) else field.helptext
        text, _, unset = " ".join((text or "").split()).partition(DEFAULT)
        return text, unset.rstrip(".") or "not set"

    if field.default is None:
        conf["help_behavior_hint"] = lambda _: f"(default: {parts()[1]})"
    elif field.default in ((), {}):
        conf["help_behavior_hint"] = "(default: none)"
    kind: Any = Annotated[field.type, tyro.conf.arg(**conf)]
    return dataclasses.replace(field, type=kind, helptext=lambda: parts()[0])


def unset(words: str, **conf: Any) -> object:
    """Return the annotation of a function's option whose default None means `words`."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {words})", **conf)


def registry() -> ConstructorRegistry:
    """Return a registry with the rules of this module, to which a caller may add."""
    rules = ConstructorRegistry()
    rules.primitive_rule(key_values)
    rules.primitive_rule(scalar)
    rules.primitive_rule(whole_numbers)
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
                raise ValueError(f"must be NAME=VALUE pairs, got {text!r}")
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


class Scalar(NamedTuple):
    """How values of one type are read and shown."""

    metavar: str
    """Placeholder in help texts."""
    must_be: str
    """Words for error messages."""
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def whole_number(text: str) -> int:
    """Read a whole number written as 1000000, 1_000_000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        if float(text).is_integer():
            return int(float(text))
        raise


SCALARS: dict[Any, Scalar] = {
    int: Scalar("INT", "a whole number", whole_number, "{:_}".format),
    float: Scalar("FLOAT", "a number", float),
    str: Scalar("NAME", "a name", str),
    Path: Scalar("PATH", "a path", Path),
}


def scalar(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Read a number, name or path, or `None` where the type allows it."""
    is_union = get_origin(info.type) in (Union, UnionType)
    kinds = set(get_args(info.type)) if is_union else {info.type}
    optional = NoneType in kinds
    kind, *others = kinds - {NoneType} or {None}
    if others or kind not in SCALARS:
        return None
    about = SCALARS[kind]

    def read(texts: list[str]) -> Any:
        if optional and texts[0] == "None":
            return None
        try:
            return about.read(texts[0])
        except (ValueError, OverflowError) as error:
            raise ValueError(f"must be {about.must_be}, got {texts[0]!r}") from error

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=about.metavar,
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, kind) or (optional and value is None),
        str_from_instance=lambda value: ["None" if value is None else about.show(value)],
    )


def whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Read any number of whole numbers, such as the sizes of layers: `--policy.hidden 64 64`."""
    if get_origin(info.type) is not tuple or get_args(info.type) != (int, ...):
        return None

    def read(texts: list[str]) -> tuple[int, ...]:
        try:
            return tuple(map(whole_number, texts))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"must be whole numbers, got {' '.join(texts)!r}") from error

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT ...]",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(number) for number in value],
    )
