"""Runs the long experiments, one after another: `make evidence`.

They run in a clone of the last commit, `build/evidence`, so that the code of a run does not change
while the working tree is edited. Every experiment skips its finished runs and resumes interrupted
ones, so the command can stop at any time and start again. `make evidence WHAT="walker atari"` runs
some of them. `make evidence WHAT=keep` copies the results into the working tree.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLONE = ROOT / "build" / "evidence"
KEEP = "keep"
SIX = "trpo trpo-vine natural-gradient empirical-fim cem cma"
"""The methods of Figure 4 on all tasks."""
TENTH = "--scale 0.1 --vine-scale 1"
EXPERIMENTS = {
    "cartpole": "cartpole",
    "swimmer": "locomotion --tasks swimmer",
    "hopper": f"locomotion --tasks hopper --methods {SIX} {TENTH}",
    "walker": f"locomotion --tasks walker --methods {SIX} {TENTH}",
    "full-size": (
        "locomotion --tasks hopper walker --methods trpo --seeds 3 --out results/full-size"
    ),
    "ablations": "ablations --task hopper --scale 0.1 --out results/ablations/hopper",
    "recipe": "recipe --seeds 5",
    "training": "training",
    "atari": "atari",
    "atari-vine": "atari --recipe paper-vine --games Pong Breakout SpaceInvaders",
    "atari-modern": "atari --recipe modern",
}
"""Arguments of `trellis reproduce` by name, in the order in which they run."""


def clone() -> None:
    """Make the clone, or bring it to the last commit if it has no results that were not kept."""
    if not CLONE.is_dir():
        CLONE.parent.mkdir(parents=True, exist_ok=True)
        _git(ROOT, "clone", "--quiet", str(ROOT), str(CLONE))
        return
    if _git(CLONE, "status", "--porcelain"):
        print(f"{CLONE} has results that are not committed: its code stays as it is")
        return
    _git(CLONE, "pull", "--quiet", "--ff-only")


def run(name: str) -> bool:
    """Run one experiment at the lowest priority, and return whether it succeeded."""
    logs = CLONE / "build"
    logs.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "trellis", "reproduce", *EXPERIMENTS[name].split()]
    print(f"{name}: {' '.join(words[2:])} > {logs / name}.log", flush=True)
    with open(logs / f"{name}.log", "a", encoding="utf-8") as log:
        done = subprocess.run(
            ["nice", "-n", "19", *words],
            cwd=CLONE,
            env={**os.environ, "PYTHONPATH": str(CLONE / "src")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    print(f"{name}: {'finished' if done.returncode == 0 else f'exit code {done.returncode}'}")
    return done.returncode == 0


def keep() -> None:
    """Copy new and changed files of the clone's results into the working tree."""
    if not CLONE.is_dir():
        print(f"there is no {CLONE}: run make evidence first")
        return
    listed = _git(CLONE, "status", "--porcelain", "--untracked-files=all", "--", "results")
    for line in listed.splitlines():
        path = line[3:]
        if (CLONE / path).is_file():
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CLONE / path, ROOT / path)
            print(path)


def main(arguments: Sequence[str]) -> int:
    """Run the named experiments, or all of them; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.evidence")
    known = (*EXPERIMENTS, KEEP)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(known)}")
    names = parser.parse_args(arguments).names
    for name in names:
        if name not in known:
            parser.error(f"there is no experiment {name!r}; choose from {', '.join(known)}")
    if KEEP in names:
        keep()
        return 0
    clone()
    failed = [name for name in names or EXPERIMENTS if not run(name)]
    return 1 if failed else 0


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
