"""Every setting of a run as an option of the command line, with its docstring as the help text.

The environment and the preset come first: they say what the defaults are, and what is written on
the command line overrides them. So the options are read twice, both times into plain values that
nobody checks yet; the configuration is made, and validated, once and from the whole.
"""

import contextlib
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from trellis.runs import presets
from trellis.runs.config import SCHEMA_VERSION, TrainConfig, from_json

SHORT = {"total_steps": "--steps", "method": "--method", "max_kl": "--max-kl"}
"""Names without their group, for what is set most."""
OUT: Any = Path | None
PROGRAM = "trellis train"
DESCRIPTION = """Trains a policy, with progress, logs, evaluations and checkpoints.

The defaults are those of the environment's preset: `trellis train ENV --help` shows them.
Without --out the run goes to runs/ENV-SEED-TIMESTAMP."""


class TrainOptions(NamedTuple):
    """What `trellis train` was asked for."""

    config: TrainConfig
    out: Path | None


def parse(args: Sequence[str]) -> TrainOptions:
    """The configuration that the arguments describe.

    Raises:
        ValueError: a setting that cannot be, or an environment or preset that does not exist.
        SystemExit: after help, and after options that cannot be read.
    """
    if "-h" in args or "--help" in args:
        _help([arg for arg in args if arg not in ("-h", "--help")])
    given = _read(args, TrainConfig(env="?"))
    defaults = presets.resolve(given["env"], given["preset"])
    values = _read(args, defaults)
    out = values.pop("out")
    values["env_options"] = {**defaults.env_options, **values["env_options"]}
    return TrainOptions(from_json({"schema_version": SCHEMA_VERSION, **values}), out)


def _help(args: Sequence[str]) -> None:
    """Prints the options with the defaults that these arguments make; ends the program."""
    defaults = TrainConfig(env="?")
    # Whatever is wrong with the rest of the line must not stand between a person and the help.
    with contextlib.suppress(SystemExit, ValueError, ImportError), _silence():
        given = _read(args, defaults)
        defaults = presets.resolve(given["env"], given["preset"])
    _read(["--help"], defaults)


def _read(args: Sequence[str], defaults: TrainConfig) -> dict[str, Any]:
    return tyro.cli(
        TrainConfig,  # pyright: ignore[reportReturnType]  # the registry makes it a dictionary
        prog=PROGRAM,
        description=DESCRIPTION,
        args=list(args),
        default=defaults,
        registry=_registry(),
    )


def _registry() -> ConstructorRegistry:
    registry = ConstructorRegistry()
    registry.primitive_rule(_key_values)
    registry.primitive_rule(_whole_number)
    inside = False

    @registry.struct_rule
    def unvalidated(info: StructTypeInfo) -> StructConstructorSpec | None:
        """A configuration as the dictionary of its settings."""
        nonlocal inside
        if inside or not dataclasses.is_dataclass(info.type):
            return None
        inside = True
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            inside = False
        if not isinstance(spec, StructConstructorSpec):
            return None
        fields = [_named(field) for field in spec.fields]
        if info.type is TrainConfig:
            fields.append(StructFieldSpec("out", OUT, None, "Folder for the run."))
        return StructConstructorSpec(lambda **values: values, tuple(fields))

    return registry


def _named(field: StructFieldSpec) -> StructFieldSpec:
    """A setting with its short name; the environment, without which there is no run, by place."""
    if field.name == "env":
        kind = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        return dataclasses.replace(field, type=kind, default=tyro.MISSING)
    if field.name == "preset":
        text = f"Settings to start from: {', '.join(presets.names())}; else the environment's own."
        return dataclasses.replace(field, helptext=text)
    if field.name in SHORT:
        kind = Annotated[field.type, tyro.conf.arg(aliases=[SHORT[field.name]])]
        return dataclasses.replace(field, type=kind)
    return field


def _key_values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
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


def _whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
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


@contextlib.contextmanager
def _silence():
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
