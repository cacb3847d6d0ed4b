"""Which code made a result."""

import subprocess
from pathlib import Path


def commit() -> str:
    """The commit that made the results, or "unknown" outside of a checkout."""
    try:
        shown = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return shown.stdout.strip()
