"""The logs of all compared runs, kept in the results as compressed JSON lines.

`logs/TASK-METHOD.jsonl.gz` has one line per run: its settings, and its metrics as columns with six
digits. Figures, curves and claims are made from these files, so they can be remade without the
runs.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trellis.reproduce.files import ResultsError
from trellis.reproduce.run_plan import RunPlan
from trellis.runs.folder import as_json
from trellis.safe_files import write_file

FOLDER = "logs"
"""Folder of the kept logs within the results."""
UNFINISHED = "logs/unfinished"
"""Folder of the logs of methods whose runs are not all finished."""
LINE_BYTES = 1 << 25
"""Longest line that is read."""
Role = Literal["compared", "swept"]


class KeptLog(NamedTuple):
    """The log of one run."""

    run: str
    """Name of the run folder."""
    role: Role
    """Whether the run is compared or part of the sweep."""
    commit: str
    """Commit of the code that trained it."""
    config: Mapping[str, Any]
    """Settings of the run."""
    columns: Mapping[str, Sequence[float | str | None]]
    """Values of each metric, one per iteration; null where an iteration has none."""
    score: Mapping[str, Any] | None = None
    """Scores of the last policy; None if it was not evaluated."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Metrics of each iteration."""
        names = list(self.columns)
        rows = zip(*self.columns.values(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def keep(plan: RunPlan, role: Role, score: Mapping[str, Any] | None = None) -> KeptLog:
    """Return the log of a finished run.

    Args:
        plan: The run.
        role: Its role in the comparison.
        score: Scores of its last policy, if there are any.
    """
    rows = plan.rows
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [_rounded(row.get(name)) for row in rows] for name in names}
    config = as_json(plan.config)
    return KeptLog(plan.folder.name, role, plan.commit, config, columns, score)


def write_logs(
    out: Path, task: str, method: str, logs: Iterable[KeptLog], folder: str = FOLDER
) -> None:
    """Write the logs of a method on a task; the file is the same whenever it is written."""
    lines = (json.dumps(log._asdict(), allow_nan=False) + "\n" for log in logs)
    path = _path(out, task, method, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path.parent, path.name, gzip.compress("".join(lines).encode(), mtime=0))


def read_logs(out: Path, task: str, method: str, folder: str = FOLDER) -> list[KeptLog]:
    """Return the kept logs of a method on a task; an empty list if there are none."""
    path = _path(out, task, method, folder)
    if not path.is_file():
        return []
    try:
        with gzip.open(path) as file:
            return list(_parsed(file))
    except (OSError, EOFError, zlib.error, ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} is not a kept log ({error}): restore it, or move it away"
        ) from error


def _parsed(file: gzip.GzipFile) -> Iterator[KeptLog]:
    while line := file.readline(LINE_BYTES):
        yield KeptLog(**json.loads(line))


def _path(out: Path, task: str, method: str, folder: str) -> Path:
    return out / folder / f"{task}-{method}.jsonl.gz"


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
