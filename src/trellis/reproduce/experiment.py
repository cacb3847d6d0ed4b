"""The interface of an experiment: a dataclass of options that can run and write its pages."""

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from trellis.config import TrainConfig
from trellis.reproduce.files import made_by, read_json
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say

Entry = TypeVar("Entry")
ALWAYS_NAMED = ("out", "seeds", "parallel")
"""Options that a recorded command names even if they have their default."""


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper; its fields are the options of `trellis reproduce NAME`."""

    name: ClassVar[str]
    """Name of the subcommand."""
    out: Path
    """Folder for the results."""
    report_only: bool = field(default=False, kw_only=True)
    """Train and measure nothing. Write the pages and figures again from the data files in the
    folder."""

    def run(self, say: Say) -> object:
        """Measure, and write the data files, the pages and the figures."""
        raise NotImplementedError

    def write_pages(self) -> None:
        """Write the pages and the figures from the data files alone."""
        raise NotImplementedError


def command(experiment: Experiment, **changes: Any) -> str:
    """Return the command that runs an experiment, with every option that is not the default.

    Args:
        experiment: Options of the experiment.
        **changes: Options to change.
    """
    words = ["trellis", "reproduce", experiment.name]
    for option in dataclasses.fields(experiment):
        value = changes.get(option.name, getattr(experiment, option.name))
        if not option.init or (value == option.default and option.name not in ALWAYS_NAMED):
            continue
        words.append(f"--{option.name.replace('_', '-')}")
        if not isinstance(value, bool):
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return shlex.join(words)


def maker(experiment: Experiment, path: Path) -> dict[str, str]:
    """Return the command and commit that made the results in a file.

    With `report_only` nothing is measured, so they stay those that the file has.

    Args:
        experiment: Options of the experiment.
        path: JSON file with the results.
    """
    if experiment.report_only and (before := read_json(path)):
        return {name: before[name] for name in ("command", "commit")}
    return made_by(command(experiment, report_only=False))


@dataclass(frozen=True)
class TrainingExperiment(Experiment):
    """Options of an experiment that trains runs."""

    seeds: int
    """Number of seeds, one run each."""
    runs: Path
    """Folder for the runs."""
    parallel: int = 2
    """Number of runs at the same time, one thread each. 1 gives a run all cores, for timing."""

    def __post_init__(self):
        require_at_least_one(seeds=self.seeds, parallel=self.parallel)

    def plan_seeds(self, stem: Path, config: TrainConfig, seeds: Iterable[int]) -> list[RunPlan]:
        """Return one run per seed, in the folders STEM-SEED."""
        threads = 1 if self.parallel > 1 else 0  # 0: all cores.
        return [
            RunPlan(
                stem.with_name(f"{stem.name}-{seed}"),
                dataclasses.replace(config, seed=seed, threads=threads),
            )
            for seed in seeds
        ]


def require_at_least_one(**options: int) -> None:
    """Raise a ValueError if a number is below 1."""
    for name, value in options.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def require_scale(scale: float) -> None:
    """Raise a ValueError if a scale is not in (0, 1]."""
    if not 0 < scale <= 1:
        raise ValueError(f"scale must be in (0, 1], got {scale}")


def look_up(table: Mapping[str, Entry], names: tuple[str, ...], kind: str) -> list[Entry]:
    """Return the entries with these names, or raise a ValueError that lists all names."""
    for name in names:
        if name not in table:
            raise ValueError(f"there is no {kind} {name!r}; choose from {', '.join(table)}")
    return [table[name] for name in names]
