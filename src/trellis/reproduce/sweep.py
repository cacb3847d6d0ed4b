"""Many runs, each a process of its own: finished ones are not run again, interrupted ones resume.

A run is named by its folder, so a sweep can be stopped at any time and started again, with more
seeds or more tasks as well. Two of them may also go on at once: a run that another process has in
hand is waited for.
"""

import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.config import TrainConfig
from trellis.reproduce.sweep_progress import SweepProgress
from trellis.runs.checkpoint import CHECKPOINTS, CheckpointError, load_latest, newest_iteration
from trellis.runs.folder import CONFIG, RunFolderError, read_config, require_same_run
from trellis.runs.log import METRICS, read_metrics
from trellis.runs.provenance import UNKNOWN

REPORT_SECONDS = 30.0
"""Between two lines about how far a sweep is."""
OTHERS_SECONDS = 30.0
"""Between two looks at a run that another process has in hand."""


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
    def config(self) -> TrainConfig:
        """What the run is to be; raises where its options cannot be."""
        return dataclasses.replace(_parsed(self.env, self.options), seed=self.seed)

    @property
    def weight(self) -> float:
        """The work of all of it: simulator steps, at most."""
        return self.config.total_steps

    @property
    def progress(self) -> float:
        """The part of the run that is behind it, from 0 to 1."""
        rows = self._rows()
        if not rows:
            return 0.0
        config = read_config(self.folder)
        # The log is a step ahead of the checkpoint, and it is the checkpoint that is looked at.
        saved = newest_iteration(self.folder / CHECKPOINTS) == rows[-1]["iteration"]
        if saved and config.is_over(rows[-1]["iteration"], rows[-1]["steps"]):
            return 1.0
        limit = config.max_iterations
        by_iteration = rows[-1]["iteration"] / limit if limit else 0.0
        return min(0.999, max(by_iteration, rows[-1]["steps"] / config.total_steps))

    @property
    def commit(self) -> str:
        """Of the code that wrote its last checkpoint, if it says so."""
        try:
            return load_latest(self.folder / CHECKPOINTS).versions.get("commit", UNKNOWN)
        except CheckpointError:
            return UNKNOWN

    @property
    def finished(self) -> bool:
        """Whether it has all its iterations."""
        return self.progress == 1.0

    def check(self) -> None:
        """Raises if its options cannot be, or its folder holds a run of other settings."""
        config = self.config
        if not (self.folder / CONFIG).is_file():
            return
        require_same_run(self.folder, config)
        found = read_config(self.folder)
        for name in ("total_steps", "max_iterations"):
            if getattr(found, name) != getattr(config, name):
                raise RunFolderError(
                    f"{self.folder} is a run with {name} {getattr(found, name)}, not"
                    f" {getattr(config, name)}: move it away, or choose another folder for the runs"
                )

    def _rows(self) -> list[dict[str, Any]]:
        if not (self.folder / CONFIG).is_file() or not (self.folder / METRICS).is_file():
            return []
        return read_metrics(self.folder)


@functools.cache
def _parsed(env: str, options: tuple[str, ...]) -> TrainConfig:
    from trellis.cli import train_options

    return train_options.parse([env, *options]).config


def execute(plans: Sequence[RunPlan], parallel: int, say: Callable[[str], None]) -> None:
    """Runs what is not finished, so many at a time; raises after the rest is done if one failed."""
    for plan in plans:
        plan.check()
    waiting = [plan for plan in plans if not plan.finished]
    say(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    if not waiting:
        return
    progress = SweepProgress(waiting)
    failures: list[str] = []
    over = threading.Event()

    def report() -> None:
        while not over.wait(REPORT_SECONDS):
            say(progress.line())

    running: set[subprocess.Popen[str]] = set()
    # Runs side by side compute with a thread each: more would wait for each other.
    threads = {"NPROC": os.environ.get("NPROC", "1")} if parallel > 1 else {}

    def one(plan: RunPlan) -> None:
        error = _finish(plan, over, running, threads)
        if over.is_set() and not plan.finished:
            say(f"{plan.folder} stopped; the same command goes on with it")
            return
        if error:
            failures.append(f"{plan.folder}: {error}")
        progress.ended(plan)
        say(f"{plan.folder} {'failed' if error else 'finished'}; {progress.line()}")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        with ThreadPoolExecutor(parallel) as pool, _exiting_when_terminated():
            try:
                list(pool.map(one, waiting))
            except BaseException:
                over.set()
                _terminate(running)  # They write a checkpoint and stop.
                try:
                    pool.shutdown(cancel_futures=True)
                except BaseException:
                    _terminate(running)  # A second Ctrl-C: at once.
                    raise
                raise
    finally:
        over.set()
        reporter.join()
    if failures:
        raise RuntimeError("some runs failed, the others are kept:\n" + "\n".join(failures))


def evaluate(plan: RunPlan, episodes: int) -> dict[str, Any]:
    """What the last policy of a run achieves without noise."""
    result = _trellis(["eval", str(plan.folder), "--episodes", str(episodes), "--json"])
    if result.returncode:
        raise RuntimeError(f"{plan.folder} cannot be evaluated: {result.stderr.strip()}")
    return json.loads(result.stdout)


@contextlib.contextmanager
def _exiting_when_terminated() -> Iterator[None]:
    """SIGTERM, or a terminal that closes, ends a sweep as an error would, and not before its runs
    have been told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: Any) -> None:
        sys.exit(128 + number)

    numbers = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _terminate(running: set[subprocess.Popen[str]]) -> None:
    for child in list(running):
        child.terminate()


def _finish(
    plan: RunPlan,
    over: threading.Event,
    running: set[subprocess.Popen[str]],
    threads: Mapping[str, str],
) -> str | None:
    """Runs it to its end; what went wrong, if anything did."""
    while not over.is_set() and not plan.finished:
        result = _trellis(plan.command, running, over, threads)
        if result.returncode == 0:
            return None
        said = complaint(result.stderr)
        if result.returncode < 0:
            killer = signal.Signals(-result.returncode).name
            said = f"it was ended by {killer} (SIGKILL often means that memory ran out)\n{said}"
        if "another process" not in said and "holds a run already" not in said:
            return said
        over.wait(OTHERS_SECONDS)
    return None


def complaint(stderr: str) -> str:
    """From what a command of ours wrote, why it failed: its last message with all its lines."""
    lines = stderr.strip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("trellis: ")]
    return "\n".join(lines[starts[-1] if starts else -5 :]) or "it died without a word"


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "trellis", *arguments]


def _trellis(
    arguments: list[str],
    running: set[subprocess.Popen[str]] | None = None,
    over: threading.Event | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command of ours, with these variables besides; `running` has its process meanwhile.

    In a group of its own, so that Ctrl-C reaches it by us alone, and once: a second signal would
    end it at once.
    """
    command = _command(arguments)
    running = set() if running is None else running
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        process_group=0 if os.name == "posix" else None,
    ) as child:
        running.add(child)
        if over is not None and over.is_set():
            child.terminate()
        try:
            out, error = child.communicate()
        finally:
            running.discard(child)
    return subprocess.CompletedProcess(command, child.returncode, out, error)
