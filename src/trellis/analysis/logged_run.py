"""Logged runs: their settings, their metrics, and which of them repeat one experiment.

Runs repeat one experiment if they differ only in their seed and in bookkeeping such as checkpoints.
Opening a run here imports no environment.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trellis.checkpoint_format import CHECKPOINTS, newest_iteration
from trellis.config import TrainConfig
from trellis.config.file import MAY_CHANGE, flatten
from trellis.runs.folder import as_json
from trellis.runs.log import METRICS, stream_metrics
from trellis.runs.log_lines import LogError
from trellis.safe_files import is_there
from trellis.strict_json import shown

BOOKKEEPING = MAY_CHANGE | {"schema_version", "seed"}
"""Settings that say nothing about what is learned from how many steps."""
SCORE_SETTINGS = {"total_steps", "max_iterations", "eval_drawn"}
"""Bookkeeping settings that change the score, or the schedules of a run."""
REPETITION = BOOKKEEPING - SCORE_SETTINGS
"""Settings in which repetitions of one experiment may differ."""


@dataclass(frozen=True)
class LoggedRun:
    """A run folder and its settings."""

    folder: Path
    config: TrainConfig

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of the iterations so far."""
        return list(self.stream())

    def stream(self) -> Iterator[dict[str, Any]]:
        """Yield the metrics of the iterations so far, one row at a time."""
        if is_there(self.folder, METRICS):
            # First the checkpoint: while a run trains, it is never newer than the log.
            newest = newest_iteration(self.folder / CHECKPOINTS)
            yield from stream_metrics(self.folder, newest)

    def number(self, row: Mapping[str, Any], name: str) -> float | None:
        """Return a metric of a row; None if it does not exist there.

        Raises:
            LogError: The metric is not a number.
        """
        value = row.get(name)
        if value is not None and not isinstance(value, int | float):
            raise LogError(
                f"{self.folder / METRICS}: {name} of iteration {row['iteration']} must be a number,"
                f" got {shown(value)}"
            )
        return value


Run = TypeVar("Run", bound=LoggedRun)


def settings_of(config: TrainConfig, leave_out: Collection[str] = BOOKKEEPING) -> dict[str, Any]:
    """Return the settings by full name (`step.max_kl`), without some top-level ones."""
    return flatten({k: v for k, v in as_json(config).items() if k not in leave_out})


def group_runs(
    runs: Iterable[Run], leave_out: Collection[str] = REPETITION
) -> list[tuple[dict[str, Any], list[Run]]]:
    """Return the settings and the runs of each experiment.

    Raises:
        ValueError: If an experiment has two runs with the same seed.
    """
    groups: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run in runs:
        settings = settings_of(run.config, leave_out)
        _, group = groups.setdefault(json.dumps(settings, sort_keys=True), (settings, []))
        for other in group:
            if other.config.seed == run.config.seed:
                raise ValueError(
                    f"{other.folder} and {run.folder} have the same settings and the same seed"
                    f" {run.config.seed}: a mean would count one experiment twice; leave one of"
                    " them out"
                )
        group.append(run)
    return list(groups.values())
