"""Environments that misbehave: one clear line that names id, step and seed, or training continues.

Every fault runs as a command of its own, in its process and in worker processes. Nothing may hang,
print a traceback, or leave a process, a file in shared memory, a descriptor or a thread behind.
"""

import gc
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.faults.counts import record
from tests.faults.misbehaving import Misbehaving
from tests.faults.processes import MODULE, forgotten_memory, options, session, shared_zygote
from trellis.checkpoint_format import load_latest
from trellis.envs.errors import EnvError, EnvInterrupted
from trellis.envs.gym.make import make_gym

SEARCH = ["--method", "cem", "--search.population", 4, "--search.episodes", 1]
"""A search compiles nothing, so that a run takes less than a second."""
TRAINS = [
    "step forks",
    "step forks a sleeper",
    "step starts a process",
    "step leaves a thread",
    "step leaves a daemon",
    "step replaces signal handlers",
    "step prints megabytes",
    "step closes stdout",
    "step closes descriptors",
    "step changes the working directory",
    "step changes errors of NumPy",
    "step seeds global generators",
    "step is slow",
    "step hangs at exit",
    "init replaces signal handlers",
    "observation leaves its box",
    "observation is changed later",
    "action is changed",
    "info is None",
    "episode never ends",
    "copy raises",
    "copy exits",
    "copy forgets",
    "state lies",
    "close hangs",
]
"""Faults that do not matter: the run ends with code 0."""
SAME = [name for name in TRAINS if name.startswith("step")]
"""Faults after which the run has learned what it would have learned without them."""
FAILS = {
    "step raises": "step raised ZeroDivisionError: the pole has no length",
    "step raises nothing to read": "step raised AssertionError without a message",
    "step raises many lines": r"step raised ValueError: one two \[31m three",
    "step raises what cannot be printed": "step raised UnprintableError: its message raised",
    "step raises a megabyte": "step raised ValueError: xxx",
    "step exits": "step raised SystemExit: 0",
    "step interrupts": "step raised KeyboardInterrupt",
    "step raises GeneratorExit": "step raised GeneratorExit",
    "step raises BaseException": "step raised CustomBaseException: strange",
    "step raises MemoryError": "step raised MemoryError",
    "step raises StopIteration": "step raised StopIteration",
    "step recurses": "step raised RecursionError",
    "step returns four values": "step raised ValueError: not enough values",
    "step returns None": "step raised TypeError",
    "reward is NaN": "reward is not finite",
    "reward is infinite": "reward is not finite",
    "reward is None": "reward must be one number, got NoneType",
    "reward is text": "reward must be one number, got str",
    "reward is an object": "reward must be one number, got object",
    "reward is an array": "reward must be one number, got ndarray",
    "reward is too large": "reward must be one number, got int",
    "reward is complex": "reward must be one number, got complex",
    "observation is NaN": "observation is not finite",
    "observation is None": "observation has shape",
    "observation has another shape": "observation has shape",
    "observation has another dtype": "observation has dtype",
    "observation is an object": "observation has dtype object",
    "observation is ragged": "observation is a list, which cannot become an array",
    "observation leaves its space": "observation is 5, which is outside of",
    "terminated is None": "terminated must be True or False, got None",
    "terminated is text": "terminated must be True or False, got 'yes'",
    "truncated is an array": "truncated must be True or False, got array",
    "spaces change": "observation has shape",
    "reset raises": "reset raised OSError: no such level",
    "reset exits": "reset raised SystemExit: 5",
    "reset returns the observation alone": "reset must return",
    "reset returns None": "reset must return",
    "reset returns another shape": "observation has shape",
    "reset returns NaN": "observation is not finite",
}
"""Faults that stop a run that has started, and what the line says."""
NEVER_STARTS = {
    "init raises": "making it raised OSError: port in use",
    "init raises nothing to read": "making it raised AssertionError without a message",
    "init exits": "making it raised SystemExit: 3",
    "init interrupts": "making it raised KeyboardInterrupt",
    "spaces are missing": "has the action space None",
    "spaces raise": "reading its spaces raised RuntimeError: connect first",
    "action space is text": "has the action space Text",
    "observation space is a sequence": "has no fixed shape",
    "close raises": "close raised PermissionError: the window stays",
    "close exits": "close raised SystemExit: 4",
    "close hangs in spite of all": "close hangs and cannot be interrupted",
}
"""Faults that stop the command before there is a run, and what the line says."""
DIES = {"step leaves the process": 7, "step kills the process": -9, "step aborts": -6}
"""Faults that end the process they are in, with its exit code."""
FAULTS = [*TRAINS, *FAILS, *NEVER_STARTS, *DIES, "step hangs"]


@pytest.fixture(scope="module")
def untroubled(tmp_path_factory):
    """θ of the run without a fault, by the number of worker processes."""
    found = {}

    def theta(workers):
        if workers not in found:
            out = tmp_path_factory.mktemp("untroubled") / "run"
            code, output = shared_zygote().run(*command("nothing", workers, out))
            assert code == 0, output
            found[workers] = load_latest(out / "checkpoints").arrays["theta"].tobytes()
        return found[workers]

    return theta


def command(fault, workers, out):
    env = "MisbehavingSaved-v0" if fault == "state lies" else "Misbehaving-v0"
    given = [f"fault={fault}"]
    if workers:
        given += [f"workers={workers}", "worker_timeout_seconds=5"]
    flags = options(192, out, env_options=given)
    return ["train", f"{MODULE}:{env}", *flags, *SEARCH, "--search.path-length", 20]


def check(fault, workers, folder, untroubled):
    out, shared = folder / "run", set(os.listdir("/dev/shm"))
    running = shared_zygote().start(*command(fault, workers, out))
    if fault == "step hangs" and not workers:
        wait_for(lambda: (out / "checkpoints" / "000000").exists())
        time.sleep(0.5)
        running.send(signal.SIGINT)
        assert not running.ended(0.3), "the first signal waits for the end of the iteration"
        running.send(signal.SIGINT)
    code, left = running.wait(90), running.wait_for_others()
    output = running.output
    assert "Traceback" not in output, output
    if fault == "step starts a process" and not workers:
        assert left, "a process that an environment starts in ours is its own"
        running.kill_session()
        left = []
    assert not left, output
    assert not forgotten_memory(shared)
    if fault in TRAINS or (workers and fault == "close hangs in spite of all"):
        assert code == 0, output
        if fault in SAME:
            assert load_latest(out / "checkpoints").arrays["theta"].tobytes() == untroubled(workers)
        return
    if fault in DIES and not workers:
        assert code == DIES[fault]
        load_latest(out / "checkpoints")
        return
    if fault == "step hangs" and not workers:
        assert code == 128 + signal.SIGINT, output
        assert "stopped by SIGINT" in output
        load_latest(out / "checkpoints")
        return
    lines = [line for line in output.splitlines() if line.startswith("trellis:")]
    assert len(lines) == 1, output
    assert "Misbehaving-v0" in lines[0]
    assert len(lines[0]) < 1000
    if fault in NEVER_STARTS:
        assert code in (1, 2), output
        assert re.search(NEVER_STARTS[fault], lines[0])
        assert not out.exists()
        return
    assert code == 1, output
    said = {**FAILS, **dict.fromkeys(DIES, "worker process 0 ended with exit code")}
    said["step hangs"] = "worker process 0 did not answer within 5 s"
    assert re.search(said[fault], lines[0]), output
    assert re.search(r"step \d of the episode with seed \d+", lines[0]), output
    assert "trellis resume" in output
    load_latest(out / "checkpoints")


def test_a_misbehaving_environment(tmp_path, untroubled):
    check("step exits", 0, tmp_path, untroubled)


@pytest.mark.fault
@pytest.mark.parametrize("workers", [0, 2], ids=["in process", "in workers"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_misbehaving_environment(fault, workers, tmp_path, untroubled):
    where = "in workers" if workers else "in process"
    record(f"misbehaving environments {where}", 1, 0)
    check(fault, workers, tmp_path, untroubled)
    record(f"misbehaving environments {where}", 0, 1)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@pytest.mark.parametrize("fault", ["render raises", "render returns None"])
def test_pictures_that_fail(fault):
    batch = make_gym(Misbehaving, 1, fault=fault, render_mode="rgb_array")
    with pytest.raises(EnvError, match="Misbehaving: render raised"):
        batch.render(0)
    batch.close()


def test_a_keyboard_interrupt_of_an_environment_stays_one_in_a_notebook():
    batch = make_gym(Misbehaving, 1, fault="step interrupts")
    batch.reset(np.arange(1), np.array([1]))
    for _ in range(4):
        batch.step(np.zeros(1, int))
    with pytest.raises(KeyboardInterrupt, match="step 5 of the episode") as caught:
        batch.step(np.zeros(1, int))
    assert isinstance(caught.value, EnvInterrupted)
    assert isinstance(caught.value.error, EnvError)


def test_nothing_is_left_after_a_hundred_batches():
    """Descriptors, threads and processes of batches that fail in all possible ways."""
    faults = ["step raises", "step exits", "reset raises", "init raises", "reward is NaN"]

    def play(fault):
        try:
            batch = make_gym(Misbehaving, 4, fault=fault)
            try:
                for first in (0, 1):
                    batch.reset(np.arange(4), np.arange(4) + first)
                    for _ in range(6):
                        batch.step(np.zeros(4, int))
            finally:
                batch.close()
        except EnvError:
            return
        raise AssertionError(f"{fault} went unnoticed")

    def left():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    play(faults[0])
    before = left()
    for _ in range(20):
        for fault in faults:
            play(fault)
    assert left() == before


@pytest.mark.fault
def test_nothing_is_left_of_workers_that_fail():
    before = None
    for fault in ("step raises", "step leaves the process", "step hangs", "init raises") * 5:
        record("leaks of worker processes", 1, 0)
        try:
            batch = make_gym(Misbehaving, 2, fault=fault, workers=2, worker_timeout_seconds=0.5)
            batch.reset(np.arange(2), np.arange(2) + 1)
            for _ in range(6):
                batch.step(np.zeros(2, int))
        except EnvError:
            batch = None
        gc.collect()
        pid = os.getpid()
        children = [child for child in session(os.getsid(0)) if _parent(child) == pid]
        found = (len(os.listdir("/proc/self/fd")), threading.active_count(), children)
        before = before or found
        assert found == before
        record("leaks of worker processes", 0, 1)


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize("busy", [True, pytest.param(False, marks=pytest.mark.fault)])
def test_workers_end_within_two_seconds_of_their_parent(busy, tmp_path):
    """Whether they wait for a command or are in the middle of a long step."""
    code = (
        "import time, numpy as np\n"
        "from tests.faults.misbehaving import Misbehaving\n"
        "from trellis.envs.gym.make import make_gym\n"
        "batch = make_gym(Misbehaving, 2, fault='step hangs', workers=2)\n"
        "batch.reset(np.arange(2), np.arange(2) + 1)\n"
        "print(*batch._workers.pids, flush=True)\n"
        f"for _ in range({6 if busy else 0}): batch.step(np.zeros(2, int))\n"
        "time.sleep(1000)"
    )
    running = shared_zygote().start("--version", before=code)
    wait_for(lambda: len(running.output.split()) == 2)
    pids = [int(pid) for pid in running.output.split()]
    time.sleep(1.0 if busy else 0.0)
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    running.send(signal.SIGKILL)
    started = time.monotonic()
    wait_for(lambda: not running.left())
    assert time.monotonic() - started < 2.0
