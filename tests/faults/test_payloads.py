"""A malicious run folder runs no code, changes nothing outside, and ends in one clear line.

Every payload is tried with every command that opens a run. `make test-faults` tries all of them; a
sample of each class is part of the fast tests.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from tests.faults.commands import COMMANDS, MEMORY_BYTES, execute
from tests.faults.payloads import PAYLOADS, Payload, Place

pytest.importorskip("matplotlib")
pytest.importorskip("imageio_ffmpeg")

MODULES = ("payload", "pack", "pack.inner", "this", "run", "run.payload")


@pytest.fixture(scope="session")
def warm(good_run):
    """Open the good run with every command, which loads and compiles what it needs."""
    for command in COMMANDS:
        copy = shutil.copytree(good_run, good_run.with_name("copy"))
        ended = execute(command, copy)
        assert (ended.code, ended.warned) == (0, ""), (command, ended)
        shutil.rmtree(copy)


@pytest.fixture
def place(good_run, tmp_path, monkeypatch):
    """A copy of the good run in the current folder, beside files that belong to somebody else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("precious")
    (outside / "000001").mkdir()
    (outside / "000001" / "victim").write_text("precious too")
    here = tmp_path / "here"
    shutil.copytree(good_run, here / "run")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    gymnasium.register("FaultyEntry-v0", "payload:Env")
    yield Place(here / "run", outside, tmp_path / "trap")
    gymnasium.registry.pop("FaultyEntry-v0")
    for name in MODULES:
        sys.modules.pop(name, None)


def content(folder: Path) -> dict[str, str]:
    """What is in a folder, by path: hashes of files, targets of links."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and path.stat().st_size < 1 << 20:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = str(path.stat().st_size if path.is_file() else "folder")
    return found


def check(payload: Payload, command: str, place: Place) -> None:
    """Try a payload with a command; raise if it had an effect that it must not have."""
    payload.apply(place)
    before = content(place.outside)
    ended = execute(command, place.run)
    assert not place.trap.exists(), "code was executed"
    assert not set(MODULES) & set(sys.modules), "a module was imported"
    assert content(place.outside) == before, "files outside were changed"
    ended.require_bounds()
    if command in payload.refused:
        ended.require_refused()
    else:
        assert ended.code == 0, ended
        if command in payload.warned:
            assert ended.warned, ended


SAMPLE = list({payload.kind: payload for payload in PAYLOADS if not payload.large}.values())
QUICK = ("eval", "resume", "plot", "TRPO.load")
"""Commands of the sample."""


@pytest.mark.parametrize("payload", SAMPLE, ids=lambda payload: payload.kind)
def test_a_sample_of_malicious_runs(payload, place, tmp_path):
    for command in [name for name in QUICK if name in payload.refused | payload.warned]:
        run = shutil.copytree(place.run, place.run.with_name(f"run-{command}"))
        outside = shutil.copytree(place.outside, tmp_path / f"outside-{command}")
        check(payload, command, Place(run, outside, place.trap))


TRIALS = [
    pytest.param(payload, command, id=f"{payload.kind}: {payload.name}-{command}")
    for payload in PAYLOADS
    for command in COMMANDS
    # It reads the settings alone, as `train --config` does, and trains for a second.
    if command != "tune --config" or command in payload.refused
]


@pytest.mark.fault
@pytest.mark.parametrize(("payload", "command"), TRIALS)
def test_a_malicious_run_does_no_harm(payload, command, warm, place, trial):
    with trial(f"payloads, {payload.kind}"):
        check(payload, command, place)


MEASURE = """
import resource, sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from tests.faults.commands import execute
good, bad, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
execute(command, good)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
execute(command, bad)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.fault
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "payload", [one for one in PAYLOADS if one.large], ids=lambda payload: payload.name
)
def test_a_large_file_does_not_fill_the_memory(payload, command, place, trial):
    """In a process of its own, whose largest size before is that of opening a good run."""
    good = shutil.copytree(place.run, place.run.with_name("good"))
    payload.apply(place)
    root = Path(__file__).parents[2]
    arguments = [str(good), str(place.run), command, str(root / "src"), str(root)]
    with trial("memory of a process"):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) < MEMORY_BYTES
