"""Every way to open a run folder, as a function that returns how it ended."""

import contextlib
import io
import os
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trellis import TRPO, SavedPolicy
from trellis.cli.main import main

SECONDS = 5.0
"""Longest time that a payload may take."""
MEMORY_BYTES = 512 << 20
"""Largest growth of a process by a payload."""
CHATTER = (
    *("warning:", "Resuming ", "Recording ", "Measuring ", "iteration "),
    *("Evaluating ", "Tuning ", "1/1: "),
)
"""Beginnings of lines that are not errors."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code; 2 for an exception of the Python interface that a caller can expect."""
    errors: list[str]
    """Lines of standard error that are neither warnings nor progress."""
    warned: str
    """Warnings."""
    seconds: float
    memory: int
    """Growth of the process in bytes, as far as it exceeds what it had before."""

    def require_refused(self) -> None:
        """The command ended with one clear line and exit code 2."""
        assert self.code == 2, self
        assert len(self.errors) == 1, self
        assert self.errors[0].isprintable(), self
        assert 20 < len(self.errors[0]) < 1500, self
        assert "Traceback" not in self.errors[0], self

    def require_bounds(self) -> None:
        """The command took neither long nor much memory."""
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # Others use the cores, too.
        assert self.seconds < SECONDS * busy, self
        assert self.memory < MEMORY_BYTES, self


def _predict(run: Path) -> int:
    agent = TRPO.load(run)
    try:
        agent.predict(np.zeros(4, np.float32))
    finally:
        agent.close()
    return 0


def _act(run: Path) -> int:
    SavedPolicy.load(run).act(np.zeros(4, np.float32))
    return 0


def _figure(run: Path) -> str:
    return str(run.with_name("figure.png"))


def _train(run: Path) -> int:
    """Train a new run with the settings of another one."""
    out = run.with_name(f"{run.name}-again")
    return main(["train", "--config", str(run / "config.json"), "--out", str(out)])


def _tune(run: Path) -> int:
    """Search from the settings of a run; the environment is named by the user."""
    out = run.with_name(f"{run.name}-tuned")
    out.mkdir(exist_ok=True)
    files = ["--study", str(out / "a.study"), "--out", str(out / "best.json")]
    length = ["--steps", "64", "--trials", "1", "--evaluations", "1"]
    return main(["tune", "CartPole-v1", "--config", str(run / "config.json"), *length, *files])


COMMANDS: dict[str, Callable[[Path], int]] = {
    "eval": lambda run: main(["eval", str(run), "--episodes", "1"]),
    "record": lambda run: main(["record", str(run), "--max-steps", "2"]),
    "resume": lambda run: main(["resume", str(run), "--steps", "256"]),
    "plot": lambda run: main(["plot", str(run), "--out", _figure(run)]),
    "compare": lambda run: main(["compare", str(run)]),
    "improvement": lambda run: main(["improvement", str(run), "--episodes", "2", "--pairs", "1"]),
    "report": lambda run: main(["report", str(run), "--out", str(run.with_name("report.html"))]),
    "export": lambda run: main(["export", str(run), "--format", "numpy"]),
    "share": lambda run: main(
        ["share", str(run), "--to", str(run.with_name(f"{run.name}-shared")), "--episodes", "1"]
    ),
    "pretrained": lambda run: main(
        ["pretrained", str(run), "--to", str(run.with_name("policies")), "--episodes", "1"]
    ),
    "train --config": _train,
    "tune --config": _tune,
    "TRPO.load": _predict,
    "SavedPolicy.load": _act,
}
SHOW_LOG = frozenset(["plot", "compare", "report"])
READ_LOG = SHOW_LOG | {"resume", "improvement"}
PUBLISH = frozenset(["share", "pretrained"])
READ_STATE = PUBLISH | {"eval", "record", "resume", "export", "TRPO.load", "SavedPolicy.load"}
NEED_ENV = PUBLISH | {"eval", "record", "resume", "improvement", "train --config"}
READ_OPTIONS = NEED_ENV | {"tune --config"}
"""Commands that use the options of the environment."""
EVERY = frozenset(COMMANDS)


def execute(command: str, run: Path) -> Ended:
    """Open a run with a command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    before, start = _peak(), time.perf_counter()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            code = COMMANDS[command](run)
        except (ValueError, OSError, RuntimeError) as error:  # The Python interface.
            code = 2
            print(f"{type(error).__name__}: {error}", file=err)
    seconds = time.perf_counter() - start
    lines = [line for line in err.getvalue().splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith(CHATTER)]
    shown = [line for line in lines if line.startswith("warning:")]
    warned = "\n".join([*(str(one.message) for one in caught), *shown])
    return Ended(code, errors, warned, seconds, _peak() - before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
