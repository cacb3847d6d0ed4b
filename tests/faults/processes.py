"""Commands of the fault suite as processes of their own, and what they leave behind."""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = "tests.faults.misbehaving"


class Running:
    """A command that runs in a session of its own."""

    def __init__(self, zygote: "Zygote", pid: int, output: Path):
        self._zygote, self.pid, self._output = zygote, pid, output
        self._descriptor = os.pidfd_open(pid)
        self.code: int | None = None

    @property
    def output(self) -> str:
        """What it has printed so far, to both streams."""
        return self._output.read_text(errors="replace")

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does within so many seconds."""
        if self.code is None and select.select([self._descriptor], [], [], seconds)[0]:
            self.code = self._zygote.ask({"wait": self.pid})
            os.close(self._descriptor)
        return self.code is not None

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code; it is killed after so many seconds."""
        if not self.ended(seconds):
            text = self.output
            self.kill_session()
            raise AssertionError(f"still running after {seconds} seconds: {text[-2000:]}")
        assert self.code is not None
        return self.code

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill_session(self) -> None:
        for pid in [*self.left(), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended(10)

    def left(self) -> list[int]:
        """Processes of its session that are alive, besides itself."""
        return [pid for pid in session(self.pid) if pid != self.pid]

    def wait_for_others(self, seconds: float = 2.0) -> list[int]:
        """Processes of its session that are still alive after so many seconds."""
        deadline = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left


class Zygote:
    """Starts commands quickly; see `zygote.py`. They share what JAX has compiled."""

    def __init__(self):
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._folder = tempfile.TemporaryDirectory(prefix="faults")
        compiled = {
            "JAX_COMPILATION_CACHE_DIR": str(Path(self._folder.name) / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **compiled, "PYTHONPATH": path},
            text=True,
        )
        assert self._answer() == "ready"

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, "the zygote has died"
        return json.loads(line)

    def ask(self, request: dict):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def start(
        self, *arguments: object, cwd: Path | None = None, before: str = "", **environment: str
    ) -> Running:
        """Start `trellis` with these arguments.

        Args:
            *arguments: the command line.
            cwd: the working directory.
            before: Python code that the process runs first.
            **environment: environment variables.
        """
        self._count += 1
        output = Path(self._folder.name) / str(self._count)
        output.touch()
        request = {
            "arguments": [str(argument) for argument in arguments],
            "cwd": str(cwd or self._folder.name),
            "output": str(output),
            "environment": environment,
            "before": before,
        }
        return Running(self, self.ask(request), output)

    def run(self, *arguments: object, seconds: float = 120.0, **options) -> tuple[int, str]:
        """Run `trellis`; return its exit code and what it printed."""
        running = self.start(*arguments, **options)
        return running.wait(seconds), running.output

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self._folder.cleanup()


@functools.cache
def shared_zygote() -> Zygote:
    """The zygote of all tests of this process."""
    zygote = Zygote()
    atexit.register(zygote.close)
    return zygote


def session(sid: int) -> list[int]:
    """Processes of a session that are no zombies."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # After the name, which may contain anything: state, parent, group, session.
            state, _, _, number = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(number) == sid and state != "Z":
                found.append(int(entry.name))
    return found


def forgotten_memory(before: set[str]) -> set[str]:
    """Names of shared memory that is new and that no process uses, so nobody will remove it."""
    new = set(os.listdir("/dev/shm")) - before
    for entry in Path("/proc").glob("[0-9]*") if new else ():
        with contextlib.suppress(OSError):
            maps = (entry / "maps").read_text()
            new = {name for name in new if f"/dev/shm/{name}" not in maps}
    return new & set(os.listdir("/dev/shm"))


def options(steps: int, out: Path, **more: object) -> list[object]:
    """Options of a small, quick run."""
    small = {
        "steps": steps,
        "out": out,
        "sampling.num_envs": 2,
        "sampling.steps_per_env": 32,
        "policy.hidden": 8,
        "estimation.critic_hidden": 8,
        "estimation.critic_epochs": 1,
        "checkpoint_every": 64,
        "eval_every": 0,
        "eval_episodes": 2,
        "threads": 1,
        **more,
    }
    flags = []
    for name, value in small.items():
        flags.append("--" + name.replace("_", "-"))
        flags.extend(value if isinstance(value, list) else [value])
    return flags
