"""Every setting of a run as an option of the command line, with its docstring as the help text.

The environment and the preset come first: they say what the defaults are, and what is written on
the command line overrides them. So the options are read twice, both times into plain values that
nobody checks yet; the configuration is made, and validated, once and from the whole.
"""

import contextlib
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from trellis import presets
from trellis.cli import options as option_values
from trellis.config import SCHEMA_VERSION, TrainConfig, from_json

SHORT = {
    "total_steps": "--steps",
    "method": "--method",
    "max_kl": "--max-kl",
    "sampler": "--sampler",
    "shards": "--shards",
}
"""Names without their group, for what is set most."""
OUT: Any = Path | None
CLUSTER: Any = Annotated[str | None, tyro.conf.arg(metavar="local|auto|HOST:PORT")]
CLUSTER_HELP = (
    "Where the shards run: on a Ray of this machine, on the cluster that it is part of, or on the"
    " one with this head; else in this process. The result is the same."
)
WORKERS: Any = int | None
WORKERS_HELP = "Of the cluster, that hold the shards; as many as it has CPUs for, unless said."
PROGRAM = "trellis train"
DESCRIPTION = """Trains a policy, with progress, logs, evaluations and checkpoints.

The defaults are those of the environment's preset: `trellis train ENV --help` shows them.
Without --out the run goes to runs/ENV-SEED-TIMESTAMP."""


class Where(NamedTuple):
    """Who computes, which is no part of the result."""

    cluster: str | None = None
    workers: int | None = None


class TrainOptions(NamedTuple):
    """What `trellis train` was asked for."""

    config: TrainConfig
    out: Path | None
    where: Where


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
    out, where = values.pop("out"), Where(values.pop("cluster"), values.pop("workers"))
    values["env_options"] = {**defaults.env_options, **values["env_options"]}
    written = {arg.partition("=")[0].replace("_", "-") for arg in args}
    if written & {"--steps", "--total-steps"} and "--max-iterations" not in written:
        values["max_iterations"] = None  # what was asked for is not cut short by a preset
    return TrainOptions(from_json({"schema_version": SCHEMA_VERSION, **values}), out, where)


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
    registry = option_values.registry()
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
            fields.append(StructFieldSpec("cluster", CLUSTER, None, CLUSTER_HELP))
            fields.append(StructFieldSpec("workers", WORKERS, None, WORKERS_HELP))
        return StructConstructorSpec(lambda **values: values, tuple(fields))

    return registry


def _named(field: StructFieldSpec) -> StructFieldSpec:
    """A setting with its short name; the environment, without which there is no run, by place."""
    if field.name == "env":
        kind = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        return dataclasses.replace(field, type=kind, default=tyro.MISSING)
    if field.name == "preset":
        text = "Settings to start from, else the environment's own; `trellis presets` lists them."
        return dataclasses.replace(field, helptext=text)
    if field.name in SHORT:
        kind = Annotated[field.type, tyro.conf.arg(aliases=[SHORT[field.name]])]
        return dataclasses.replace(field, type=kind)
    return field


@contextlib.contextmanager
def _silence():
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
