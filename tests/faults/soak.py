"""Train for minutes and watch what must not grow: memory, descriptors, threads and disk.

    make soak MINUTES=60
    python -m tests.faults.soak --minutes 60

Two runs take half of the time each: one in process, one with environments in worker processes. The
first fifth of a run does not count: compiled programs and caches fill in it.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.faults.processes import ROOT, options, session

KINDS = {
    "in process": ["CartPole-v1"],
    "in workers": ["CartPole-v0", "--env-options", "workers=1"],
}
MEMORY_SLOPE = 2.0
"""Largest growth of memory, in MiB a minute, beyond what the scatter of the measurements allows."""
MEMORY_GROWTH = 64.0
"""Largest growth of memory in all, in MiB."""
DISK_PER_ITERATION = 1500
"""Largest growth of the run folder, in bytes an iteration: a row of the log and its events."""
DISK_BASE = 4 << 20
"""What a run folder may have besides: checkpoints and files that are being written."""


@dataclass(frozen=True)
class Sample:
    """What the processes of a run use at one time."""

    minutes: float
    memory: float
    descriptors: int
    threads: int
    processes: int


def main() -> int:
    """Run both kinds; return 0 if everything stayed within its bounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    broken = [fault for kind in KINDS for fault in soak(kind, minutes / len(KINDS))]
    for fault in broken:
        print(f"NOT HELD: {fault}")
    return 1 if broken else 0


def soak(kind: str, minutes: float) -> list[str]:
    """Train for so many minutes; return which bounds were not held."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        out = Path(folder) / "run"
        flags = options(10**12, out, checkpoint_every=6400, eval_every=6400)
        words = [sys.executable, "-m", "trellis", "train", *KINDS[kind], *flags]
        printed = Path(folder) / "printed"
        with open(printed, "w") as file:
            process = subprocess.Popen(
                [str(word) for word in words],
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        samples = watch(process, out, minutes)
        process.send_signal(signal.SIGINT)
        process.wait(120)
        if process.returncode != 128 + signal.SIGINT:
            end = printed.read_text()[-500:]
            return [f"{kind}: the run ended with code {process.returncode}: {end}"]
        left = session(process.pid)
        with open(out / "metrics.jsonl", "rb") as file:
            iterations = sum(1 for _ in file)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    found = check(kind, samples, iterations, size)
    return [*found, *([f"{kind}: processes {left} are left"] if left else [])]


def watch(process: "subprocess.Popen[bytes]", out: Path, minutes: float) -> list[Sample]:
    """Measure the processes of a run every second, from its first checkpoint on."""
    while not (out / "checkpoints" / "000001").exists() and process.poll() is None:
        if (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").stat().st_size > 0:
            break
        time.sleep(0.1)
    started, samples = time.monotonic(), []
    while process.poll() is None and (now := (time.monotonic() - started) / 60) < minutes:
        samples.append(measure(process.pid, now))
        time.sleep(1.0)
    return samples


def measure(sid: int, minutes: float) -> Sample:
    """Return what all processes of a session use."""
    memory, descriptors, threads, pids = 0.0, 0, 0, session(sid)
    for pid in pids:
        with contextlib.suppress(OSError):
            folder = Path(f"/proc/{pid}")
            pages = int((folder / "statm").read_text().split()[1])
            memory += pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            descriptors += len(os.listdir(folder / "fd"))
            threads += len(os.listdir(folder / "task"))
    return Sample(minutes, memory, descriptors, threads, len(pids))


def check(kind: str, samples: list[Sample], iterations: int, size: int) -> list[str]:
    """Print a table and return which bounds were not held."""
    used = samples[len(samples) // 5 :]
    if len(used) < 10:
        return [f"{kind}: only {len(used)} measurements; give it more minutes"]
    time_, memory = (np.array([getattr(s, name) for s in used]) for name in ("minutes", "memory"))
    centred = time_ - time_.mean()
    slope = float(centred @ memory / (centred @ centred))
    rest = memory - memory.mean() - slope * centred
    error = float(np.sqrt(rest @ rest / (len(used) - 2) / (centred @ centred)))
    growth = float(np.median(memory[-5:]) - np.median(memory[:5]))
    allowed = DISK_BASE + DISK_PER_ITERATION * iterations
    extremes = {
        name: (min(getattr(s, name) for s in used), max(getattr(s, name) for s in used))
        for name in ("descriptors", "threads", "processes")
    }
    print(f"{kind}: {time_[-1]:.1f} minutes, {iterations:,} iterations")
    print(f"  memory       {memory[0]:.0f} to {memory[-1]:.0f} MiB,", end=" ")
    print(f"slope {slope:.2f} ± {error:.2f} MiB a minute")
    for name, (low, high) in extremes.items():
        print(f"  {name:<12} {low} to {high}")
    print(f"  disk         {size / 2**20:.2f} MiB, at most {allowed / 2**20:.2f}", flush=True)
    faults = []
    if slope - 3 * error > MEMORY_SLOPE or growth > MEMORY_GROWTH:
        faults.append(f"memory grows by {slope:.2f} MiB a minute, {growth:.0f} MiB in all")
    # A checkpoint or an evaluation may have a file open for a moment.
    if extremes["descriptors"][1] > np.median([s.descriptors for s in used[:10]]) + 4:
        faults.append(f"descriptors grow to {extremes['descriptors'][1]}")
    if extremes["threads"][1] > np.median([s.threads for s in used[:10]]) + 2:
        faults.append(f"threads grow to {extremes['threads'][1]}")
    if size > allowed:
        faults.append(f"the run folder has {size:,} bytes")
    return [f"{kind}: {fault}" for fault in faults]


if __name__ == "__main__":
    sys.exit(main())
