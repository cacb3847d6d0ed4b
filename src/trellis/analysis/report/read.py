"""Reads runs for the report: points of curves, the step's health, evaluations, videos, versions."""

import collections
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trellis.analysis.logged_run import LoggedRun
from trellis.analysis.report.points import CURVES, Points
from trellis.checkpoint_format import CHECKPOINTS, CheckpointError, read_versions
from trellis.runs.folder import read_config
from trellis.safe_files import UnsafeFileError, open_folder, read_file
from trellis.strict_json import shown

FULL_STEP = 1.0 - 1e-6
"""Smallest fraction of a step that counts as the full step."""
MOST_STATUSES = 12
"""Largest number of different statuses that are counted; others count together."""
MOST_VIDEOS = 4
"""Largest number of videos of a run in a report."""
VIDEO_BYTES = 16 << 20
"""Largest video in a report."""
TAIL = 0.1
"""Last part of a run, whose iterations make its final training return."""
NUMBERS = ("iteration", "steps", *CURVES, "eval_return_std", "episodes")
TIMES = (
    "seconds_sampling",
    "seconds_estimation",
    "seconds_update",
    "seconds_iteration",
)


class Evaluation(NamedTuple):
    """One evaluation of a run."""

    steps: int
    mean: float
    std: float | None


class Mean:
    """Mean and extremes of values that arrive one by one."""

    def __init__(self):
        self.count, self.total = 0, 0.0
        self.first: float | None = None
        self.last: float | None = None
        self.largest: float | None = None

    def add(self, value: float | None) -> None:
        """Add a value, unless it is missing."""
        if value is None:
            return
        self.first = value if self.first is None else self.first
        self.last = value
        self.largest = value if self.largest is None else max(self.largest, value)
        self.count, self.total = self.count + 1, self.total + value

    @property
    def value(self) -> float | None:
        """Mean of the values; None without any."""
        return self.total / self.count if self.count else None


class Health:
    """The step's health: how often steps were full, accepted and shortened, and how well solved."""

    def __init__(self):
        self.statuses: collections.Counter[str] = collections.Counter()
        self.means = {name: Mean() for name in CURVES}
        self.full = self.steps = 0

    def add(self, row: dict[str, float | None], status: object) -> None:
        """Add one iteration."""
        name = shown(status, 40, quotes=False)
        if name not in self.statuses and len(self.statuses) >= MOST_STATUSES:
            name = "other"
        self.statuses[name] += 1
        for curve, mean in self.means.items():
            mean.add(row[curve])
        fraction = row["step_fraction"]
        if fraction is not None:
            self.steps += 1
            self.full += fraction >= FULL_STEP

    @property
    def full_share(self) -> float | None:
        """Fraction of iterations that took the full step."""
        return self.full / self.steps if self.steps else None


class Video(NamedTuple):
    """A video of a run."""

    name: str
    data: bytes


@dataclass(frozen=True)
class ReportRun(LoggedRun):
    """A run and what the report shows about it."""

    points: Points
    health: Health
    last: Evaluation | None
    """Last evaluation in the log."""
    best: Evaluation | None
    """Evaluation with the highest mean return."""
    iteration: int
    steps: int
    versions: dict[str, str]
    videos: list[Video]

    @property
    def is_over(self) -> bool:
        """Whether the run has finished."""
        return self.config.is_over(self.iteration, self.steps)


def read_run(folder: Path, points: int) -> ReportRun:
    """Read one run; its log is read once, line by line.

    Args:
        folder: Run folder.
        points: Largest number of points of a curve.

    Raises:
        RunFolderError: The folder is not a run.
        LogError: The log has a value that is not a number.
    """
    run = LoggedRun(folder, read_config(folder))
    curve, health = Points(points), Health()
    last = best = None
    iteration = steps = 0
    for row in run.stream():
        numbers = {name: run.number(row, name) for name in (*NUMBERS, *TIMES)}
        iteration, steps = int(numbers["iteration"] or 0), int(numbers["steps"] or 0)
        curve.add(numbers)
        health.add(numbers, row.get("status", "unknown"))
        mean = numbers["eval_return_mean"]
        if mean is not None:
            last = Evaluation(steps, mean, numbers["eval_return_std"])
            best = last if best is None or mean > best.mean else best
    versions, videos = _versions(folder), list(_videos(folder))
    return ReportRun(
        folder, run.config, curve, health, last, best, iteration, steps, versions, videos
    )


def _versions(folder: Path) -> dict[str, str]:
    """Return the versions of the software that wrote the newest checkpoint."""
    try:
        found = read_versions(folder / CHECKPOINTS)
    except CheckpointError:
        return {}
    return {shown(k, 40, quotes=False): shown(v, 40, quotes=False) for k, v in found.items()}


def _videos(folder: Path) -> Iterator[Video]:
    """Yield the videos directly in the folder; links and large files are left out."""
    with open_folder(folder) as at:
        names = sorted(name for name in os.listdir(at) if re.fullmatch(r"[^.].*\.mp4", name))
    for name in names[:MOST_VIDEOS]:
        try:
            data = read_file(folder, name, limit=VIDEO_BYTES)
        except UnsafeFileError:
            continue
        if data[4:8] == b"ftyp":
            yield Video(name, data)
