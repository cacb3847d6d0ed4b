"""Many runs, each in its own process: finished runs are skipped, interrupted ones resume.

A run is named by its folder, so a sweep can be stopped at any time and started again, also with
more seeds or tasks. Two sweeps may share runs: the exit code of a command says that another process
uses a run folder (`RunLockedError`, `RunExistsError`), and the sweep waits for that run.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep_progress import SweepProgress
from trellis.runs.folder import CONFIG, RunExistsError, RunLockedError, as_json

Say = Callable[[str], None]
"""Prints a message about the work."""
REPORT_SECONDS = 30.0
"""Time between two lines of progress."""
OTHERS_SECONDS = 30.0
"""Time between two tries of a run that another process has."""
POLL_SECONDS = 0.2
"""Time between two looks at the signals that have arrived."""
TAKEN = (RunLockedError.exit_code, RunExistsError.exit_code)
"""Exit codes of a command whose run another process has."""


def execute(plans: Sequence[RunPlan], parallel: int, say: Say) -> None:
    """Run what is not finished, `parallel` runs at a time.

    After a signal that stops the sweep, its runs write a checkpoint and stop; a second signal stops
    them at once.

    Raises:
        RuntimeError: After all runs, if some failed.
    """
    for plan in plans:
        plan.check()
    waiting = [plan for plan in plans if not plan.finished]
    say(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    progress = SweepProgress(waiting)
    failures: list[str] = []
    # Parallel runs compute with one thread each: more would wait for each other.
    environment = {"NPROC": "1"} if parallel > 1 else {}
    environment.update(os.environ)

    def one(plan: RunPlan) -> None:
        if received:
            return
        error = _finish(plan, environment, received)
        if received and not plan.finished:
            say(f"{plan.folder} stopped; the same command resumes it")
            return
        if error:
            failures.append(f"{plan.folder}: {error}")
        progress.ended(plan)
        say(f"{plan.folder} {'failed' if error else 'finished'}; {progress.line()}")

    with _received_signals() as received, ThreadPoolExecutor(parallel) as pool:
        running = [pool.submit(one, plan) for plan in waiting]
        while wait(running, REPORT_SECONDS).not_done:
            say(progress.line())
    if received:
        raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])
    for future in running:
        future.result()
    if failures:
        raise RuntimeError("some runs failed, the others are kept:\n" + "\n".join(failures))


@contextlib.contextmanager
def _received_signals() -> Iterator[list[int]]:
    """Yield the list of the signals that have arrived: Ctrl-C, SIGTERM, a terminal that closed."""
    received: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _finish(plan: RunPlan, environment: Mapping[str, str], received: Sequence[int]) -> str | None:
    """Run a plan to its end; return what went wrong, if anything did."""
    while not received and not plan.finished:
        with tempfile.TemporaryDirectory() as temporary:
            arguments = ["resume", str(plan.folder)]
            if not plan.has_started:
                path = Path(temporary) / CONFIG
                path.write_text(json.dumps(as_json(plan.config)), encoding="utf-8")
                arguments = ["train", "--config", str(path), "--out", str(plan.folder)]
            code, stderr = _trellis(arguments, environment, received)
        if code == 0:
            return None
        if code not in TAKEN:
            killer = ""
            if code < 0:
                hint = "SIGKILL often means that memory ran out"
                killer = f"it was ended by {signal.Signals(-code).name} ({hint})\n"
            return killer + failure_message(stderr)
        again = time.monotonic() + OTHERS_SECONDS
        while not received and time.monotonic() < again:
            time.sleep(min(POLL_SECONDS, OTHERS_SECONDS))
    return None


def failure_message(stderr: str) -> str:
    """Return the last message of a command that failed, with all its lines."""
    lines = stderr.strip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("trellis: ")]
    return "\n".join(lines[starts[-1] if starts else -5 :]) or "it failed without a message"


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `trellis` with these arguments in a new process."""
    return [sys.executable, "-m", "trellis", *arguments]


def _trellis(
    arguments: Sequence[str], environment: Mapping[str, str], received: Sequence[int]
) -> tuple[int, str]:
    """Run `trellis`, which every received signal terminates; return its exit code and messages.

    The process has its own group, so that Ctrl-C reaches it once, through us: a second signal would
    end it at once.
    """
    with subprocess.Popen(
        command(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        process_group=0 if os.name == "posix" else None,
    ) as child:
        passed_on = 0
        while True:
            if passed_on < len(received):
                passed_on += 1
                child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, stderr = child.communicate(timeout=POLL_SECONDS)
                return child.returncode, stderr
