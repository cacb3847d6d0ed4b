"""Writes the report, once or again and again while runs are in progress."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trellis.analysis.report.page import render
from trellis.analysis.report.points import CURVES
from trellis.analysis.report.read import ReportRun, read_run
from trellis.runs.folder import write_whole

MOST_NUMBERS = 250_000
"""Largest number of values in the curves of a report, which keeps it under 5 MB."""
MOST_POINTS, FEWEST_POINTS = 512, 32
"""Limits of the number of points of a curve."""
MOST_RUNS = 500
"""Largest number of runs in a report."""
WATCH_SECONDS = 10.0
"""Time between two versions of a report that is watched."""


class Report(NamedTuple):
    """A report that was written."""

    path: Path
    size: int
    """Size in bytes."""
    unfinished: int
    """Number of runs that are not finished."""


def write_report(
    folders: Sequence[str | Path],
    path: str | Path = "report.html",
    *,
    refresh_seconds: float | None = None,
) -> Report:
    """Write the report of these runs as one HTML file.

    Args:
        folders: Run folders.
        path: HTML file to write.
        refresh_seconds: Time after which an open page loads itself again. Default: never.

    Raises:
        RunFolderError: A folder is not a run.
        ValueError: There is no run, there are too many, or a run is given twice.
    """
    runs, path = read_runs(folders), Path(path)
    if all(run.is_over for run in runs):
        refresh_seconds = None
    text = render(runs, refresh_seconds=refresh_seconds)
    write_whole(path, text)
    return Report(path, len(text.encode()), sum(not run.is_over for run in runs))


def read_runs(folders: Sequence[str | Path]) -> list[ReportRun]:
    """Return the runs with as many points as fit into a report."""
    if not folders:
        raise ValueError("no run to report on: name at least one run folder")
    if len(folders) > MOST_RUNS:
        raise ValueError(f"a report has at most {MOST_RUNS} runs, got {len(folders)}")
    share = MOST_NUMBERS // (len(folders) * (len(CURVES) + 3))
    points = 2 * (max(FEWEST_POINTS, min(MOST_POINTS, share)) // 2)
    return [read_run(Path(folder), points) for folder in folders]


def watch(
    folders: Sequence[str | Path],
    path: str | Path = "report.html",
    *,
    seconds: float = WATCH_SECONDS,
    on_written: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Write the report again and again until all runs are finished.

    Args:
        folders: Run folders.
        path: HTML file to write.
        seconds: Time between two versions.
        on_written: Called after each version.
    """
    while True:
        report = write_report(folders, path, refresh_seconds=seconds)
        on_written(report)
        if not report.unfinished:
            return report
        time.sleep(seconds)
