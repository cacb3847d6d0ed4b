"""Counts of what the fault suite has tried and what held, for docs/reference/faults.md."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "faults"
TRIED: Counter[str] = Counter()
HELD: Counter[str] = Counter()


def record(kind: str, tried: int, held: int) -> None:
    """Add to the counts of a class."""
    TRIED[kind] += tried
    HELD[kind] += held


@contextlib.contextmanager
def count_trial(kind: str, number: int = 1) -> Iterator[None]:
    """Count trials of a class; they hold if nothing is raised."""
    record(kind, number, 0)
    yield
    record(kind, 0, number)


def write_counts() -> None:
    """Write the counts of this process to a file of its own."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    counts = {kind: [TRIED[kind], HELD[kind]] for kind in sorted(TRIED)}
    (FOLDER / f"{worker}-{os.getpid()}.json").write_text(json.dumps(counts, indent=1))
