"""Every setting of a run as an option of `trellis train`, with its docstring as the help text.

The settings of --config, or of the environment's preset, are the defaults that options override.
So the command line is read twice: once to find ENV, --preset and --config, and once with the right
defaults. Both times it becomes plain values; the configuration is validated once, as a whole.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from trellis import presets
from trellis.cli import options
from trellis.cli.runs import require_id
from trellis.config import SCHEMA_VERSION, TrainConfig, from_json
from trellis.config_file import load_config

ALIASES = {
    "total_steps": "--steps",
    "method": "--method",
    "max_kl": "--max-kl",
    "sampler": "--sampler",
    "shards": "--shards",
}
"""Short options for the most common settings."""
PLAIN = TrainConfig(env="?")
"""Defaults where neither an environment nor a file is known."""
HELP = {"-h", "--help"}
DESCRIPTION = """Train a policy, with progress, logs, evaluations and checkpoints.

The defaults are those of the environment's preset: `trellis train ENV --help` shows them.
--steps lifts the preset's limit on iterations, unless --max-iterations is given, too.
Without --out the run goes to runs/ENV-SEED-TIMESTAMP."""


@dataclass(frozen=True)
class Arguments:
    """The command line of `trellis train` as plain values."""

    settings: Annotated[TrainConfig, tyro.conf.arg(name="")]
    """Configuration. While arguments are read it is a dictionary that has not been validated."""
    config: Path | None = None
    """JSON file with the settings to start from, such as the config.json of a run. ENV may then be
    left out. Excludes --preset."""
    out: Path | None = None
    """Folder for the run."""
    cluster: Annotated[str | None, tyro.conf.arg(metavar="local|auto|HOST:PORT")] = None
    """Where the shards run: on a Ray of this machine, on the cluster that it is part of, or on the
    one with this head. Default: in this process. The result is the same."""
    workers: int | None = None
    """Number of Ray workers. Default: one per CPU of the cluster."""
    trust_env: bool = False
    """Import the module that the file of --config names for its environment."""


def parse(args: Sequence[str]) -> Arguments:
    """Return what the arguments ask for.

    Raises:
        ValueError: If a setting, a file, an environment or a preset is not valid.
        SystemExit: After help, and if an option cannot be read.
    """
    if not HELP.isdisjoint(args):
        _print_help([arg for arg in args if arg not in HELP])
    defaults = _defaults(_read(args, PLAIN, env=""))
    read = _read(args, defaults, env=tyro.MISSING if defaults is PLAIN else defaults.env)
    values: Any = read.settings
    values["env_options"] = {**defaults.env_options, **values["env_options"]}
    written = {arg.partition("=")[0].replace("_", "-") for arg in args}
    if written & {"--steps", "--total-steps"} and "--max-iterations" not in written:
        values["max_iterations"] = None
    config = from_json({"schema_version": SCHEMA_VERSION, **values})
    return dataclasses.replace(read, settings=config)


def _print_help(args: Sequence[str]) -> NoReturn:
    """Print the options with the defaults that these arguments lead to, and exit."""
    defaults = PLAIN
    # A mistake elsewhere on the line must not hide the help.
    with contextlib.suppress(SystemExit, ValueError, ImportError):
        defaults = _defaults(_read(args, PLAIN, env="", quiet=True))
    _read(["--help"], defaults, env=tyro.MISSING)
    raise SystemExit(0)


def _defaults(asked: Arguments) -> TrainConfig:
    """Return the settings of the file, or those of the preset, which options override."""
    values: Any = asked.settings
    env, preset, path = values["env"], values["preset"], asked.config
    if path is None:
        return presets.resolve(env, preset) if env else PLAIN
    if preset is not None:
        raise ValueError("--preset and --config exclude each other: the file has all settings")
    config = load_config(path)
    if env:
        return dataclasses.replace(config, env=env)
    require_id(config.env, path)
    return config


def _read(
    args: Sequence[str], defaults: TrainConfig, *, env: Any, quiet: bool = False
) -> Arguments:
    """Return the arguments, with the settings as a dictionary; `env` replaces a missing ENV."""
    registry = options.registry()
    registry.struct_rule(_unvalidated(defaults, env))
    return tyro.cli(
        Arguments,
        prog="trellis train",
        description=DESCRIPTION,
        args=list(args),
        registry=registry,
        console_outputs=not quiet,
    )


def _unvalidated(
    defaults: TrainConfig, env: Any
) -> Callable[[StructTypeInfo], StructConstructorSpec | None]:
    """Return a rule that reads a configuration, and its parts, as dictionaries of settings."""
    specs = {}
    for part in _parts(defaults):
        spec = ConstructorRegistry.get_struct_spec(StructTypeInfo.make(type(part), part, False))
        assert isinstance(spec, StructConstructorSpec)
        fields = tuple(_as_option(field, env) for field in spec.fields)
        specs[type(part)] = StructConstructorSpec(dict, fields)
    return lambda info: specs.get(info.type)


def _parts(config: Any) -> Iterator[Any]:
    """Yield a configuration and the configurations in it."""
    yield config
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _parts(value)


def _as_option(field: StructFieldSpec, env: Any) -> StructFieldSpec:
    """Return a setting with its alias, and the environment as a positional argument."""
    if field.name == "env":
        kind = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
        return dataclasses.replace(field, type=kind, default=env)
    if field.name == "preset":
        text = "Settings to start from. Default: the environment's own; see `trellis presets`."
        return dataclasses.replace(field, helptext=text)
    if field.name in ALIASES:
        kind = Annotated[field.type, tyro.conf.arg(aliases=[ALIASES[field.name]])]
        return dataclasses.replace(field, type=kind)
    return field
