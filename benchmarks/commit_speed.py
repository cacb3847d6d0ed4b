"""Compares how fast two commits of Trellis train, by short turns on this machine.

    python -m benchmarks.commit_speed --old 6a197c2

One process per commit trains the same task with the same seed. A turn is a few iterations of one
process while the other one waits; the order within a pair of turns alternates. A swing of the
machine's speed, which lasts longer than a turn, therefore meets both sides. Both sides compute the
same iterations, so the ratio of a pair of turns compares equal work.

Each run gives one ratio, new over old: the median over its pairs of turns. The result is the median
over runs. Compare a commit with itself to see the noise. Run it on an idle machine; the exit code
is 1 if a result is below the bound.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from benchmarks.golden import checkout

TASKS = {"Hopper-v5": 2, "CartPole-v1": 10}  # iterations of a turn: about a second
RUNS = 5
PAIRS = 20
WARM_UP = 2  # turns, in which the programs are compiled
BOUND = 0.98

TRAIN_BY_TURNS = """
import sys, time
from trellis import TRPO

env, seed, per_turn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
started, count = None, 0

def take_turns(state, metrics):
    global started, count
    count += 1
    if count % per_turn:
        return
    if started is not None:
        print(time.perf_counter() - started, flush=True)
    if not sys.stdin.readline():
        sys.exit()
    started = time.perf_counter()

TRPO(env, seed=seed).learn(10**9, callback=take_turns)
"""


class Side:
    """A process that trains with the code of one commit, a turn at a time."""

    def __init__(self, tree: Path, env: str, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", TRAIN_BY_TURNS, env, str(seed), str(TASKS[env])],
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            cwd=tree.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self) -> float:
        """Train for a turn and return its seconds."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._process.communicate()  # the end of its input ends it


def ratio_of_run(old_tree: Path, new_tree: Path, env: str, run: int, pairs: int) -> float:
    """Return the median over pairs of turns of the new side's speed over the old side's."""
    ratios = []
    with contextlib.ExitStack() as stack:
        # Which side starts first alternates too.
        trees = [old_tree, new_tree] if run % 2 == 0 else [new_tree, old_tree]
        first, second = (stack.enter_context(Side(tree, env, seed=run)) for tree in trees)
        for pair in range(-WARM_UP, pairs):
            order = (first, second) if pair % 2 == 0 else (second, first)
            seconds = {side: side.turn() for side in order}
            ratios.append(seconds[first] / seconds[second])
    ratio = statistics.median(ratios[WARM_UP:])
    return ratio if trees[1] == new_tree else 1 / ratio


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the training speed of two commits.")
    parser.add_argument("--old", required=True, metavar="COMMIT")
    parser.add_argument("--new", metavar="COMMIT", help="default: the working tree")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of turns of each run")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options = parser.parse_args()
    slower = 0
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = [
            stack.enter_context(checkout(commit, temporary / f"{side}-tree"))
            for side, commit in (("old", options.old), ("new", options.new))
        ]
        for env in options.tasks:
            ratios = [ratio_of_run(*trees, env, run, options.pairs) for run in range(options.runs)]
            ratio = statistics.median(ratios)
            slower += ratio < BOUND
            each = " ".join(f"{value:.3f}" for value in ratios)
            print(f"{env:<12} new over old {ratio:.3f} (bound {BOUND}; runs {each})", flush=True)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
