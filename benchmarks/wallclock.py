"""Measures return against minutes: Trellis, sb3-contrib TRPO, SB3 PPO and SBX CrossQ.

    make bench WHAT=wallclock
    python -m benchmarks.wallclock --tasks Hopper-v5 --seeds 30 --minutes 10

A block is a task and a seed: all opponents train by turns, each alone on all cores for the same
minutes. Finished blocks are kept in `results/wallclock/blocks`, and no block is repeated, so the
hours can be spread over many days. A block that was interrupted on another machine is run again.
SBX has an environment of its own (`--sbx-python`), because it needs other versions.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.wallclock_page import minutes_to, read_blocks, targets_of, write_page
from trellis.reproduce.files import write_json
from trellis.runs.provenance import commit

OUT = Path("results/wallclock")
TASKS = ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Swimmer-v5", "Ant-v5")
SEEDS = (30, 31, 32)
"""Seeds that were not used to choose settings."""
MINUTES = 10.0
OPPONENTS = ("trellis", "sb3-trpo", "sb3-ppo", "sbx-crossq")
SBX_PYTHON = Path("build/sbx/bin/python")
"""Interpreter of the environment with SBX, from `make bench-sbx`."""
WON = ("Hopper-v5", "Walker2d-v5", "Swimmer-v5")
"""Tasks on which Trellis is to need less time than every opponent."""


def machine() -> str:
    """Return the processor and the number of usable cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    found = {}
    for name in ("jax", "mujoco", "gymnasium", "sb3-contrib", "stable-baselines3", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def run_block(
    task: str, seed: int, minutes: float, opponents: Sequence[str], out: Path, sbx: Path
) -> None:
    """Run what is missing of a block, and keep every opponent when it is done."""
    path = out / "blocks" / f"{task}-{seed}.json"
    about = {"task": task, "seed": seed, "minutes": minutes, "machine": machine()}
    block: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if set(opponents) <= block.get("curves", {}).keys():
        return
    if any(block.get(name) != value for name, value in about.items()):
        block = {**about, "versions": versions(), "commit": commit(), "curves": {}}
    for opponent in opponents:
        if opponent in block["curves"]:
            continue
        print(f"  {task}, seed {seed}: {opponent} trains for {minutes:g} minutes", flush=True)
        python = sbx if opponent.startswith("sbx") else Path(sys.executable)
        if not python.is_file():
            print(f"  {opponent} is left out: there is no {python}; run make bench-sbx")
            continue
        block["curves"][opponent] = _train(python, opponent, task, seed, minutes)
        write_json(path, block)


def _train(python: Path, opponent: str, task: str, seed: int, minutes: float) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        points = Path(folder) / "points.json"
        words = [opponent, task, str(seed), str(minutes), str(points)]
        subprocess.run([str(python), "-m", "benchmarks.wallclock_worker", *words], check=True)
        return json.loads(points.read_text())


def measure(arguments: Sequence[str]) -> None:
    """Run the missing blocks and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wallclock")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--opponents", nargs="+", default=OPPONENTS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--sbx-python", type=Path, default=SBX_PYTHON)
    parser.add_argument("--report-only", action="store_true", help="write the page again")
    given = parser.parse_args(arguments)
    if not given.report_only:
        for seed in given.seeds:
            for task in given.tasks:
                run_block(task, seed, given.minutes, given.opponents, given.out, given.sbx_python)
    write_page(given.out)


def run() -> list[Figure]:
    """Run all blocks, and compare the minutes that Trellis and the fastest opponent need."""
    measure([])
    blocks, figures = read_blocks(OUT), []
    for task, target in targets_of(blocks).items():
        minutes = minutes_to(blocks, task, target)
        others = [found for name, found in minutes.items() if name != "trellis" and found]
        ours = minutes.get("trellis")
        # An opponent that never reaches the return is slower than its minutes.
        fastest = min(others, default=max(block["minutes"] for block in blocks))
        ratio = fastest / ours if ours else 0.0
        name = f"{task}: minutes of the fastest opponent to {target:,.0f} over ours"
        figures.append(Figure(name, ratio, 1.0 if task in WON else None, at_least=True))
    return figures


if __name__ == "__main__":
    measure(sys.argv[1:])
