"""Runs that need not be trained again, because the results have their logs.

A long experiment can span several machines: run folders may be lost, results are not. When a run
ends, its log and the scores of its last policy go to `logs/unfinished/TASK-METHOD.jsonl.gz`. When
all runs of a method are there, they move to `logs/`. A planned run whose log is in one of the two,
with the same settings and role, is not trained again.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.config import from_json
from trellis.config.file import differences
from trellis.reproduce.comparison.kept_logs import (
    UNFINISHED,
    KeptLog,
    Role,
    keep,
    read_logs,
    write_logs,
)
from trellis.reproduce.files import read_json
from trellis.reproduce.run_plan import RunPlan
from trellis.runs.folder import as_json, locked

LENGTH = ("total_steps", "max_iterations")
"""Settings that may change when a run is resumed, but that must be equal here."""
SCORE = ("episodes", "mean_return", "std_return", "median_length", "mean_velocity")
"""Scores of a policy, as `Episodes.summary` names them."""
LOCK_SECONDS = 60.0
"""Longest time to wait for another command that keeps a log."""


@dataclass(frozen=True)
class KeptRun(RunPlan):
    """A planned run whose log is kept, so that its folder is not needed."""

    log: KeptLog

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of the iterations."""
        return self.log.rows

    def stream(self) -> Iterator[dict[str, Any]]:
        """Yield the metrics of the iterations."""
        yield from self.log.rows

    @property
    def has_started(self) -> bool:
        """Whether the run has started."""
        return True

    @property
    def progress(self) -> float:
        """Finished part of the run: all of it."""
        return 1.0

    @property
    def commit(self) -> str:
        """Commit of the code that trained it."""
        return self.log.commit

    @property
    def threads(self) -> int:
        """Simulator threads of the run."""
        return int(self.log.config["threads"])

    def check(self) -> None:
        """Do nothing: the settings were compared already."""


def keep_run(out: Path, task: str, method: str, log: KeptLog) -> None:
    """Add the log of a finished run to those of a method that is not finished yet."""
    folder = out / UNFINISHED
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, LOCK_SECONDS):
        kept = read_logs(out, task, method, UNFINISHED)
        others = [other for other in kept if (other.run, other.role) != (log.run, log.role)]
        write_logs(out, task, method, [*others, log], UNFINISHED)


def all_logs(out: Path, task: str, method: str) -> list[KeptLog]:
    """Return all kept logs of a method on a task, the newest last.

    Logs from before scores were kept with them take their scores from the results of the task.
    """
    record = read_json(out / f"{task}.json").get("methods", {}).get(method, {"runs": []})
    scores = {run["run"]: {k: run[k] for k in SCORE if k in run} for run in record["runs"]}
    finished = [
        log._replace(score=log.score or scores.get(log.run)) if log.role == "compared" else log
        for log in read_logs(out, task, method)
    ]
    return [*finished, *read_logs(out, task, method, UNFINISHED)]


def finish_method(out: Path, task: str, method: str, logs: Iterable[KeptLog]) -> None:
    """Write the logs of all runs of a method, and remove those of the unfinished method."""
    write_logs(out, task, method, logs)
    with contextlib.suppress(FileNotFoundError):
        (out / UNFINISHED / f"{task}-{method}.jsonl.gz").unlink()


def as_kept(plan: RunPlan, role: Role, logs: Iterable[KeptLog]) -> RunPlan:
    """Return the plan as a kept run if its log is among `logs`, else unchanged.

    A compared run must have been scored, since its policy may be lost.
    """
    for log in reversed(list(logs)):
        scored = role == "swept" or log.score is not None
        if log.run == plan.folder.name and log.role == role and scored and _same(plan, log.config):
            return KeptRun(plan.folder, plan.config, log)
    return plan


def log_of(plan: RunPlan, role: Role, score: Mapping[str, Any] | None) -> KeptLog:
    """Return the log of a finished run, with the scores of its last policy."""
    return plan.log if isinstance(plan, KeptRun) else keep(plan, role, score)


def _same(plan: RunPlan, config: Mapping[str, Any]) -> bool:
    """Return whether a kept log has the settings of a plan, whichever version wrote it."""
    there, here = as_json(from_json(config)), as_json(plan.config)
    same_length = all(there[name] == here[name] for name in LENGTH)
    return same_length and not differences(there, here)
