"""Many runs, each a process of its own: finished ones are not run again, interrupted ones resume.

A run is named by its folder, so a sweep can be stopped at any time and started again, with more
seeds or more tasks as well.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.runs.folder import CONFIG, read_config
from trellis.runs.log import read_metrics


@dataclass(frozen=True)
class RunPlan:
    """One run of a sweep."""

    folder: Path
    env: str
    seed: int
    options: tuple[str, ...] = ()
    """More of `trellis train`'s options."""

    @property
    def command(self) -> list[str]:
        """What makes it, or takes it up again."""
        if (self.folder / CONFIG).is_file():
            return ["resume", str(self.folder)]
        seed = ["--seed", str(self.seed), "--out", str(self.folder)]
        return ["train", self.env, *seed, *self.options]

    @property
    def finished(self) -> bool:
        """Whether it has all its steps."""
        if not (self.folder / CONFIG).is_file():
            return False
        rows = read_metrics(self.folder) if (self.folder / "metrics.jsonl").is_file() else []
        return bool(rows) and rows[-1]["steps"] >= read_config(self.folder).total_steps


def execute(plans: Sequence[RunPlan], parallel: int, say: Callable[[str], None]) -> None:
    """Runs what is not finished, so many at a time; raises after the rest is done if one failed."""
    waiting = [plan for plan in plans if not plan.finished]
    say(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    start, done = time.monotonic(), 0
    failures: list[str] = []

    def one(plan: RunPlan) -> None:
        nonlocal done
        result = _trellis(plan.command)
        done += 1
        if result.returncode:
            failures.append(f"{plan.folder}: {result.stderr.strip().splitlines()[-1:]}")
        left = (time.monotonic() - start) / done * (len(waiting) - done)
        say(f"{done}/{len(waiting)} {plan.env} seed {plan.seed}, {left / 60:.0f} minutes left")

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(one, waiting))
    if failures:
        raise RuntimeError("some runs failed, the others are kept:\n" + "\n".join(failures))


def evaluate(plan: RunPlan, episodes: int) -> dict[str, Any]:
    """What the last policy of a run achieves without noise."""
    result = _trellis(["eval", str(plan.folder), "--episodes", str(episodes), "--json"])
    if result.returncode:
        raise RuntimeError(f"{plan.folder} cannot be evaluated: {result.stderr.strip()}")
    return json.loads(result.stdout)


def _trellis(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trellis", *arguments]
    return subprocess.run(command, capture_output=True, text=True)
