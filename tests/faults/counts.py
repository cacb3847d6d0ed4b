"""Counts of what the fault suite has tried and what held, for the table in the docs."""

import json
from pathlib import Path

FILE = Path(__file__).parents[2] / "build" / "faults.jsonl"


def record(kind: str, tried: int, held: int) -> None:
    """Add a line to build/faults.jsonl."""
    FILE.parent.mkdir(exist_ok=True)
    with open(FILE, "a") as file:
        file.write(json.dumps({"kind": kind, "tried": tried, "held": held}) + "\n")
