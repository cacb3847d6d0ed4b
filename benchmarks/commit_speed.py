"""Compares how fast two commits of Trellis train, by turns on this machine.

    python -m benchmarks.commit_speed --old 6a197c2

Each task is trained by both commits in turn, several times. The speed of a run is the median of its
iterations' steps per second without the first ten, which compile. The ratio is new over old, of the
medians over runs. Run it on an idle machine; the exit code is 1 if a ratio is below the bound.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.golden import checkout

TASKS = {"Hopper-v5": 250_000, "CartPole-v1": 250_000}
RUNS = 5
WARM_UP = 10
BOUND = 0.98


def speed(tree: Path, env: str, steps: int, out: Path) -> float:
    """Return the median steps per second of a run with the code in `tree`."""
    options = ["--steps", str(steps), "--eval-every", "0", "--eval-episodes", "1"]
    subprocess.run(
        [sys.executable, "-m", "trellis", "train", env, *options, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=out.parent,
        capture_output=True,
        check=True,
    )
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(row["steps_per_second"] for row in rows[WARM_UP:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the training speed of two commits.")
    parser.add_argument("--old", required=True, metavar="COMMIT")
    parser.add_argument("--new", metavar="COMMIT", help="default: the working tree")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options = parser.parse_args()
    slower = 0
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {
            side: stack.enter_context(checkout(commit, temporary / f"{side}-tree"))
            for side, commit in (("old", options.old), ("new", options.new))
        }
        for env in options.tasks:
            speeds: dict[str, list[float]] = {side: [] for side in trees}
            for run in range(options.runs):
                # The order alternates, so that a machine that gets slower favours neither.
                for side in sorted(trees, reverse=bool(run % 2)):
                    out = temporary / f"{env}-{side}-{run}"
                    speeds[side].append(speed(trees[side], env, TASKS[env], out))
            ratio = statistics.median(speeds["new"]) / statistics.median(speeds["old"])
            slower += ratio < BOUND
            for side, values in speeds.items():
                print(f"{env:<12} {side:<4} {' '.join(f'{v:,.0f}' for v in values)} steps/s")
            print(f"{env:<12} new over old {ratio:.3f} (bound {BOUND})", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
