"""The metrics that docs/reference/metrics.md describes, and those that a run has logged."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def described() -> set[str]:
    """Return the metrics on the page."""
    return set(ROW.findall(PAGE.read_text("utf-8"))) - described_statuses()


def described_statuses() -> set[str]:
    """Return the values of `status` on the page."""
    section = PAGE.read_text("utf-8").partition("### Status\n")[2].partition("\n## ")[0]
    return set(ROW.findall(section))


def logged_in(path: Path) -> set[str]:
    """Return the names in a `metrics.jsonl`."""
    return {name for line in path.read_text("utf-8").splitlines() for name in json.loads(line)}
