"""Saving that is killed, or runs out of space, leaves the old state or the new one, whole."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trellis import TRPO
from trellis.checkpoint_format import CheckpointError
from trellis.runs.folder import RunFolderError

ROOT = Path(__file__).parents[2]
SYSTEM_CALLS = (
    *("open", "mkdir", "replace", "rename", "fsync", "unlink", "rmdir", "write"),
    *("listdir", "scandir", "stat"),
)


class Killed(BaseException):
    """The process ends here: nothing that follows has an effect."""


def fail_at(point: int, action: Callable[[], object], error: BaseException, last: int) -> bool:
    """Do something, whose calls of the system from this one on to the last raise an error.

    Returns:
        Whether the action came so far.
    """
    calls = 0

    def failing(real: Callable) -> Callable:
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if point < calls <= last:
                raise error
            return real(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in SYSTEM_CALLS:
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            action()
        except Killed:
            return True
        except (CheckpointError, RunFolderError) as raised:
            if "no space left" not in str(raised).lower():
                raise
            return True
    return calls > point


@pytest.fixture(scope="session")
def agents(good_agent):
    """An agent, and three that replace it: after fewer, as many, and more iterations."""
    old = TRPO.load(good_agent)
    found = {"old": good_agent}
    for iteration in (1, 2, 3):
        values = {**old._checkpoint.values, "iteration": iteration}
        new = TRPO.load(good_agent)
        new._checkpoint = new._checkpoint._replace(
            arrays={**new._checkpoint.arrays, "theta": old.theta + 1}, values=values
        )
        new._state = type(new._state)(**{**vars(new._state), "iteration": iteration})
        new._acting = type(new._acting)(
            **{**vars(new._acting), "config": type(new.config)(**{**vars(new.config), "seed": 9})}
        )
        found[iteration] = new
    return old.theta, found


def replace_agent(agents, tmp_path: Path, iteration: int, points: Iterator[int], error) -> int:
    """Replace an agent that fails at one call of the system after the other; return how many."""
    theta, found = agents
    both = [(0, theta.tobytes()), (9, (theta + 1).tobytes())]
    for tried, point in enumerate(points, 1):
        folder = tmp_path / f"{iteration}-{point}"
        shutil.copytree(found["old"], folder)
        last = sys.maxsize if isinstance(error, Killed) else point + 1
        failed = fail_at(point, lambda: found[iteration].save(folder), error, last)  # noqa: B023
        loaded = TRPO.load(folder)
        which = (loaded.config.seed, loaded.theta.tobytes())
        assert which in both, f"settings and parameters are mixed after call {point}"
        found[iteration].save(folder)  # What a failure leaves is no obstacle.
        assert TRPO.load(folder).config.seed == 9
        assert len(list((folder / "checkpoints").iterdir())) == 1
        shutil.rmtree(folder)
        if not failed:
            return tried
    return tried


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [Killed(), NO_SPACE], ids=["killed", "no space"])
def test_an_agent_is_replaced_in_one_step_at_some_calls(agents, tmp_path, error):
    replace_agent(agents, tmp_path, 1, iter(range(5, 80, 8)), error)


@pytest.mark.fault
@pytest.mark.parametrize("iteration", [1, 2, 3])
@pytest.mark.parametrize("error", [Killed(), NO_SPACE], ids=["killed", "no space"])
def test_an_agent_is_replaced_in_one_step(agents, tmp_path, iteration, error, trial):
    """Killed, or without space, at every call of the system."""
    tried = replace_agent(agents, tmp_path, iteration, itertools.count(), error)
    assert tried > 40
    what = "killed" if isinstance(error, Killed) else "no space"
    with trial(f"saving an agent, {what} at every call of the system", tried):
        pass


def run_saving(how: str, folder: Path, trials: int) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.saving", how, str(folder), str(trials)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("how", ["kill", "no-space"])
def test_a_few_interrupted_saves(how, tmp_path):
    assert run_saving(how, tmp_path / "agent", 5) == 5


@pytest.mark.fault
@pytest.mark.parametrize("how", ["kill", "no-space"])
def test_interrupted_saves(how, tmp_path, trial):
    trials = 200
    name = {"kill": "SIGKILL while saving", "no-space": "no space at a byte of a file"}[how]
    with trial(name, trials):
        assert run_saving(how, tmp_path / "agent", trials) == trials
