"""Every setting of a run as an option of `trellis train`, with its docstring as the help text.

The settings of --config, or of the environment's preset, are the defaults that options override.
So the command line is read twice: once to find ENV, --preset and --config, and once with the right
defaults. Both times it becomes plain values; the configuration is validated once, as a whole.

`COMMON` and `GROUPS` arrange the options in boxes of the help text.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro
from tyro.constructors import StructConstructorSpec, StructFieldSpec, StructTypeInfo

from trellis import presets
from trellis.cli import options
from trellis.cli.devices import DeviceKind
from trellis.cli.errors import UsageError
from trellis.cli.runs import require_id
from trellis.cli.tracking import TrackerName
from trellis.config import CONFIG_FILE, TrainConfig, from_json
from trellis.config.file import load_config
from trellis.config.versions import SCHEMA_VERSION

PROGRAM = "trellis train"
ALIASES = {
    "total_steps": "--steps",
    "step.method": "--method",
    "step.max_kl": "--max-kl",
    "sampling.sampler": "--sampler",
    "sampling.shards": "--shards",
}
"""Short options for the most common settings."""
METAVARS = {
    "env": "ENV",
    "config": "FILE",
    "out": "FOLDER",
    "cluster": "local|auto|HOST:PORT",
    "device": "cpu|gpu|tpu",
}
"""Placeholders in the help text where the type says too little."""
HELP_TEXTS = {
    "env": "Gymnasium id of the environment. `trellis envs` lists them.",
    "env_options": "Keyword arguments of the environment, such as max_episode_steps=200.",
    "max_iterations": "Maximum number of iterations. --steps removes the maximum of a preset."
    " Default: no limit.",
    "preset": "Settings to start from. `trellis presets` lists them."
    " Default: the preset of the environment.",
}
"""Help texts that differ from the docstrings of the settings."""
PLAIN = TrainConfig(env="?")
"""Defaults where neither an environment nor a file is known."""
HELP = {"-h", "--help"}
DESCRIPTION = """Train a policy, with progress, logs, evaluations and checkpoints.
  trellis train CartPole-v1
  trellis train Hopper-v5 --steps 1e6 --seed 1 --out runs/hopper

Defaults depend on the environment's preset: `trellis train ENV --help`.
"""


@dataclass(frozen=True)
class RunArguments:
    """Arguments of `trellis train` besides the settings."""

    config: Path | None = None
    """JSON file with settings to start from, such as the config.json of a run. ENV is then
    optional, and --preset is not allowed. Default: none."""
    out: Path | None = None
    """Run folder to create. Default: runs/ENV-SEED-TIMESTAMP."""
    cluster: str | None = None
    """Where the shards run: a new local Ray (local), the Ray cluster of this machine (auto), or the
    one at HOST:PORT. Default: this process."""
    workers: int | None = None
    """Number of Ray workers. Default: one per CPU of the cluster."""
    trust_env: bool = False
    """Whether to import the module that the file of --config names for its environment."""
    track: tuple[TrackerName, ...] = ()
    """Experiment trackers that also get the metrics."""
    seeds: int | None = None
    """Number of seeds to train at once, from --seed on (environments in JAX). Each has a folder of
    its own in the run folder. Default: one run."""
    device: DeviceKind | None = None
    """Kind of device that learns, and on which environments in JAX run. Default: JAX chooses."""
    devices: int | None = None
    """Number of devices for an environment in JAX, one shard each. A CPU becomes this many virtual
    devices. Default: one."""


@dataclass(frozen=True)
class Arguments:
    """What a command line of `trellis train` asks for."""

    settings: TrainConfig
    """Validated configuration of the run."""
    chosen: frozenset[str]
    """Full names of the settings that options name."""
    out: Path | None
    """Run folder. None for a new folder in runs/."""
    cluster: str | None
    """Where the shards run. None for this process."""
    workers: int | None
    """Number of Ray workers. None for one per CPU of the cluster."""
    config: Path | None
    """File of --config, or None."""
    trust_env: bool
    """Whether the file may name a module to import."""
    track: tuple[TrackerName, ...]
    """Experiment trackers that get the metrics."""
    seeds: int | None
    """Number of seeds to train at once. None for one run."""
    device: DeviceKind | None
    """Kind of device. None for what JAX chooses."""
    devices: int | None
    """Number of devices. None for one."""


@dataclass(frozen=True)
class Box:
    """Options that share a box of the help text, by the name of their group."""

    group: str


COMMON = (
    *(
        "env",
        "total_steps",
        "seed",
        "seeds",
        "preset",
        "config",
        "trust_env",
        "out",
        "step.method",
        "step.max_kl",
    ),
    *("sampling.sampler", "eval_every", "eval_episodes", "eval_drawn", "env_options"),
)
"""Options of the first box, whose group has no name."""
GROUPS = {
    "policy": "Network of the policy.",
    "sampling": "Samples of an iteration.",
    "vine": "Vine sampler (--sampler vine).",
    "estimation": "Advantages and critic.",
    "step": "Policy update.",
    "search": "Gradient-free search (--method cem or --method cma).",
    "run": "Length, checkpoints and threads of the run.",
    "cluster": "Training with several processes or devices.",
}
"""Groups of the other options, in the order of their boxes, and what they are about."""
RUN_ARGUMENTS = tuple(field.name for field in dataclasses.fields(RunArguments))
IN_CLUSTER = ("cluster", "workers", "sampling.shards", "device", "devices")


def parse(args: Sequence[str]) -> Arguments:
    """Return what the arguments ask for.

    Raises:
        ValueError: A setting, a file, an environment or a preset is not valid.
        UsageError: An option cannot be read, or ENV is missing.
        SystemExit: Help was printed.
    """
    if not HELP.isdisjoint(args):
        _print_help([arg for arg in args if arg not in HELP])
    defaults = _defaults(_read(args, PLAIN, env=""))
    if defaults is PLAIN:
        raise UsageError(
            f"missing argument: ENV, for example: {PROGRAM} CartPole-v1. `trellis envs` lists the"
            " environments."
        )
    values = _read(args, defaults, env=defaults.env)
    run = {name: values.pop(name) for name in RUN_ARGUMENTS}
    values["env_options"] = {**defaults.env_options, **values["env_options"]}
    written = {arg.partition("=")[0].replace("_", "-") for arg in args}
    if written & {"--steps", "--total-steps"} and "--max-iterations" not in written:
        values["max_iterations"] = None
    settings = from_json({"schema_version": SCHEMA_VERSION, **_nested(values)})
    names = {option.removeprefix("--").replace("-", "_") for option in written}
    return Arguments(settings, frozenset(names - {"env_options"}), **run)


def _print_help(args: Sequence[str]) -> NoReturn:
    """Print the options with the defaults that these arguments lead to, and exit."""
    defaults = PLAIN
    # A mistake elsewhere on the line must not hide the help.
    with contextlib.suppress(SystemExit, ValueError, ImportError, UsageError):
        defaults = _defaults(_read(args, PLAIN, env="", console_outputs=False))
    _read(["--help"], defaults, env=tyro.MISSING)
    raise SystemExit(0)


def _defaults(values: dict[str, Any]) -> TrainConfig:
    """Return the settings of the file, or those of the preset, which options override."""
    env, preset, path = values["env"], values["preset"], values["config"]
    if path is None:
        return presets.resolve(env, preset, values["step.method"]) if env else PLAIN
    if preset is not None:
        raise UsageError(
            "--preset and --config exclude each other; leave out --preset, because the file has"
            " all settings"
        )
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the file in it: {path / CONFIG_FILE}")
    config = load_config(path)
    if env:
        return dataclasses.replace(config, env=env)
    require_id(config.env, path)
    return config


def _read(
    args: Sequence[str], defaults: TrainConfig, *, env: Any, console_outputs: bool = True
) -> dict[str, Any]:
    """Return the value of every option by its full name; `env` replaces a missing ENV."""
    found = dict(_settings(defaults)) | {f.name: f for f in options.fields_of(RunArguments)}
    found["env"] = dataclasses.replace(found["env"], default=env)
    boxes: dict[str, list[StructFieldSpec]] = {group: [] for group in ("", *GROUPS)}
    for name in (*COMMON, *(name for name in found if name not in COMMON)):
        boxes[_group(name)].append(_as_option(name, found[name]))
    for group, about in GROUPS.items():
        boxes[""].append(StructFieldSpec(group, Box, Box(group), helptext=about))

    def box(info: StructTypeInfo) -> StructConstructorSpec | None:
        if info.type is not Box:
            return None
        return StructConstructorSpec(dict, tuple(boxes[info.default.group]))

    rules = options.registry()
    rules.struct_rule(box)
    read: Any = options.parse(
        Box,
        PROGRAM,
        args,
        rules,
        default=Box(""),
        description=DESCRIPTION,
        console_outputs=console_outputs,
    )
    for group in GROUPS:
        read |= read.pop(group)
    return read


def _settings(config: Any, prefix: str = "") -> Iterator[tuple[str, StructFieldSpec]]:
    """Yield the settings of a configuration and of those in it, by full name."""
    for field in options.fields_of(type(config), config):
        if dataclasses.is_dataclass(field.default):
            yield from _settings(field.default, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field


def _group(name: str) -> str:
    """Return the group of an option; the last part of the configuration that it belongs to."""
    if name in COMMON:
        return ""
    if name in IN_CLUSTER:
        return "cluster"
    return name.split(".")[-2] if "." in name else "run"


def _as_option(name: str, field: StructFieldSpec) -> StructFieldSpec:
    """Return a setting as an option that has the same name in every group."""
    conf: dict[str, Any] = {"name": name, "prefix_name": False, "metavar": METAVARS.get(name)}
    if name in ALIASES:
        conf["aliases"] = [ALIASES[name]]
    field = dataclasses.replace(field, name=name, helptext=HELP_TEXTS.get(name, field.helptext))
    option = options.as_option(field, **conf)
    if name == "env":
        kind: Any = Annotated[option.type, tyro.conf.Positional]
        option = dataclasses.replace(option, type=kind)
    return option


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings by full name as nested dictionaries."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parts, last = name.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested
