"""Counts of the fault suite: how many faults of each class were tried, and how many held.

A test counts its trials with the fixture `trial`. Every process writes its counts to
`build/faults/`; `python -m tests.faults.table` makes the table in docs/reference/faults.md of them.
"""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

COUNTS = Path(__file__).parents[2] / "build" / "faults"
TRIED: Counter[str] = Counter()
HELD: Counter[str] = Counter()


@contextlib.contextmanager
def count_trial(kind: str, number: int = 1) -> Iterator[None]:
    """Count trials of a class; they hold if nothing is raised."""
    TRIED[kind] += number
    yield
    HELD[kind] += number


@pytest.fixture(scope="session")
def trial():
    return count_trial


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts of a run of the whole suite, which selects the marker `fault`."""
    if TRIED and "fault" in str(session.config.option.markexpr):
        COUNTS.mkdir(parents=True, exist_ok=True)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        counts = {kind: [TRIED[kind], HELD[kind]] for kind in sorted(TRIED)}
        (COUNTS / f"{worker}-{os.getpid()}.json").write_text(json.dumps(counts, indent=1))
