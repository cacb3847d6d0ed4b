"""Many runs, each in its own process: finished runs are skipped, interrupted ones resume.

The folder identifies a run, so a sweep can stop at any time and start again, with more seeds or
tasks if needed. Two sweeps may share runs. The exit code of a command shows that another process
uses a run folder (`RunLockedError`, `RunExistsError`); the sweep then waits for that run.
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
"""Function that prints a message about the work."""
REPORT_SECONDS = 30.0
"""Time between two progress lines."""
OTHERS_SECONDS = 30.0
"""Time between two attempts to start a run that another process holds."""
POLL_SECONDS = 0.2
"""Time between two checks for signals."""
TAKEN = (RunLockedError.exit_code, RunExistsError.exit_code)
"""Exit codes of a command whose run folder another process holds."""


def execute(
    plans: Sequence[RunPlan],
    parallel: int,
    say: Say,
    ended: Callable[[RunPlan], None] = lambda plan: None,
) -> None:
    """Run the unfinished plans, `parallel` runs at a time.

    After the first signal to stop, the runs write a checkpoint and stop. A second signal stops them
    at once.

    Args:
        plans: Planned runs.
        parallel: Number of runs at the same time.
        say: Function that prints a message.
        ended: Function that is called with each run that has ended well, from its own thread.

    Raises:
        RuntimeError: If some runs failed, after all runs have ended.
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
        else:
            ended(plan)
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
        raise RuntimeError(
            "some runs failed, and the others are kept. Fix the cause and run the same command"
            " again:\n" + "\n".join(failures)
        )


@contextlib.contextmanager
def _received_signals() -> Iterator[list[int]]:
    """Yield a list that receives each signal to stop: SIGINT, SIGTERM and SIGHUP."""
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
    """Run a plan to its end; return the error message if it failed."""
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
                killer = f"{signal.Signals(-code).name} ended it ({hint})\n"
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
    """Run `trellis` and return its exit code and its messages.

    Every received signal is passed on. The process has its own group, so that Ctrl-C reaches it
    only once: a second signal would stop it at once.
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
