"""Signals at every moment of a run: it ends within seconds, leaves nothing, and resumes exactly.

A moment is a function that the run is about to call: the process sends the signal to itself there.
"""

import os
import pty
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.faults.counts import record
from tests.faults.processes import MODULE, ROOT, options, shared_zygote
from trellis.checkpoint_format import CheckpointError, load_latest
from trellis.runs.log import read_metrics

SIGNALS = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
STEPS = 256
SECONDS = 60.0
"""Time for a run to end after a signal. It needs a second on an idle machine."""
STRIKE = """
import importlib, os
def strike(where, call, number):
    module, _, path = where.partition(":")
    owner = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), []
    def strike_and_call(*args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return original(*args, **kwargs)
    setattr(owner, name, strike_and_call)
strike({where!r}, {call}, {number})
"""
MOMENTS = [
    # Set-up.
    ("trellis.cli.main:main", 1),
    ("trellis.cli.train_options:parse", 1),
    ("trellis.runs.trainers:make_trainer", 1),
    ("trellis.training.shard:build_model", 1),
    ("trellis.training.trainer:Trainer.start", 1),
    ("trellis.runs.run:make_folder", 1),
    ("trellis.runs.run:write_config", 1),
    # Saving.
    ("trellis.runs.run_state:save", 1),
    ("trellis.runs.run_state:save", 3),
    ("trellis.runs.checkpoint:write_and_sync", 3),
    ("trellis.runs.checkpoint:write_and_sync", 4),
    ("trellis.runs.checkpoint:_prune", 2),
    # One iteration.
    ("trellis.training.team:LocalTeam.collect", 2),
    ("trellis.training.team:LocalTeam.estimate", 2),
    ("trellis.training.team:LocalTeam.step", 1),
    ("trellis.training.team:LocalTeam.finish", 3),
    # The log, evaluation and the end.
    ("trellis.runs.log:RunLog.write", 2),
    ("trellis.runs.log:RunLog.sync", 2),
    ("trellis.training.evaluation:Evaluator.evaluate", 1),
    ("trellis.training.evaluation:Evaluator.evaluate", 2),
    ("trellis.training.trainer:Trainer.close", 1),
]
WORKER_MOMENTS = [
    ("trellis.envs.workers:Workers._start", 2),
    ("trellis.envs.workers:Workers.receive", 1),
    ("trellis.envs.workers:Workers.receive", 20),
    ("trellis.envs.workers:Workers.send", 30),
    ("trellis.envs.workers:_end", 1),
]
RAY_MOMENTS = [
    ("ray:init", 1),
    ("ray._private.node:Node.start_ray_processes", 1),
    ("trellis.cluster.workers:WorkerGroup._place", 1),
    ("trellis.cluster.workers:WorkerGroup.ask", 3),
    ("trellis.cluster.connection:disconnect", 1),
]
SEARCH = ["--method", "cem", "--search.population", 4, "--search.path-length", 50]
ATARI = ["workers=1", "max_frames=400"]
KINDS = {
    "trpo": ["CartPole-v1"],
    "search": ["CartPole-v1", *SEARCH],
    "workers": [f"{MODULE}:MisbehavingSaved-v0", *SEARCH, "--env-options", "workers=1"],
    "Atari": ["ALE/Pong-v5", "--policy.channels", 2, 2, "--env-options", *ATARI],
    "Ray": ["CartPole-v1", *SEARCH, "--shards", 2, "--cluster", "local", "--workers", 2],
}


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """What a run of each kind ends with."""
    found = {}

    def final(kind):
        if kind not in found:
            out = tmp_path_factory.mktemp("uninterrupted") / "run"
            # Shards give the same result on a cluster as here.
            words = KINDS[kind][: KINDS[kind].index("--cluster")] if kind == "Ray" else KINDS[kind]
            code, output = shared_zygote().run(
                "train", *words, *options(STEPS, out, eval_every=128)
            )
            assert code == 0, output
            found[kind] = contents(out)
        return found[kind]

    return final


def contents(out):
    """All arrays of the last checkpoint, and the log without times."""
    saved = load_latest(out / "checkpoints")
    rows = [
        {name: value for name, value in row.items() if "second" not in name}
        for row in read_metrics(out)
    ]
    return {name: array.tobytes() for name, array in saved.arrays.items()}, rows


def resume_or_repeat(kind, out, environment):
    """Finish a run that was interrupted; start it again if it left nothing to resume."""
    try:
        load_latest(out / "checkpoints")
        words = ["resume", out, "--trust-env"]
    except (CheckpointError, OSError):
        words = ["resume", out, "--trust-env"] if (out / "config.json").exists() else None
    if words is None:
        shutil.rmtree(out, ignore_errors=True)
        words = ["train", *KINDS[kind], *options(STEPS, out, eval_every=128)]
    code, output = shared_zygote().run(*words, **environment)
    assert code == 0, output


def check(kind, where, call, name, folder, uninterrupted, **environment):
    out, number, expected = folder / "run", SIGNALS[name], uninterrupted(kind)
    words = ["train", *KINDS[kind], *options(STEPS, out, eval_every=128)]
    before = STRIKE.format(where=where, call=call, number=int(number))
    running = shared_zygote().start(*words, before=before, **environment)
    code = running.wait(SECONDS)
    assert "Traceback" not in running.output, running.output
    assert code == 128 + number, running.output
    assert name in running.output
    assert not running.wait_for_others(10), running.output
    resume_or_repeat(kind, out, environment)
    assert contents(out) == expected


def counted(kind, *arguments, **environment):
    record(f"signals: {kind}", 1, 0)
    check(kind, *arguments, **environment)
    record(f"signals: {kind}", 0, 1)


@pytest.mark.fault
def test_a_closed_terminal_while_saving(tmp_path, uninterrupted):
    moment = ("trellis.runs.checkpoint:write_and_sync", 3)
    check("search", *moment, "SIGHUP", tmp_path, uninterrupted)


@pytest.mark.fault
def test_ctrl_c_works_although_an_environment_replaces_the_handlers(tmp_path):
    """In its constructor and in every step."""
    for fault in ("init replaces signal handlers", "step replaces signal handlers"):
        out = tmp_path / fault.replace(" ", "-")
        words = [f"{MODULE}:Misbehaving-v0", *SEARCH, "--env-options", f"fault={fault}"]
        before = STRIKE.format(where="trellis.runs.log:RunLog.write", call=3, number=2)
        words = ["train", *words, *options(100_000, out)]
        code, output = shared_zygote().run(*words, before=before)
        assert code == 130, output
        assert "stopped by SIGINT after iteration 3" in output


@pytest.mark.fault
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(("where", "call"), MOMENTS)
def test_signals_at_every_moment(where, call, name, tmp_path, uninterrupted):
    counted("trpo", where, call, name, tmp_path, uninterrupted)


@pytest.mark.fault
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(("where", "call"), WORKER_MOMENTS)
@pytest.mark.parametrize("kind", ["workers", "Atari"])
def test_signals_while_workers_run(kind, where, call, name, tmp_path, uninterrupted):
    counted(kind, where, call, name, tmp_path, uninterrupted)


@pytest.mark.fault
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize(("where", "call"), RAY_MOMENTS)
def test_signals_while_ray_runs(where, call, name, tmp_path, uninterrupted):
    folder = tempfile.mkdtemp(prefix="tr", dir="/tmp")  # The paths of Ray must be short.
    try:
        counted("Ray", where, call, name, tmp_path, uninterrupted, RAY_TMPDIR=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.fault
def test_ray_ends_with_a_driver_that_is_killed(tmp_path):
    record("signals: Ray", 1, 0)
    folder = tempfile.mkdtemp(prefix="tr", dir="/tmp")
    before = STRIKE.format(where="trellis.cluster.workers:WorkerGroup.ask", call=3, number=9)
    words = ["train", *KINDS["Ray"], *options(STEPS, tmp_path / "run")]
    running = shared_zygote().start(*words, before=before, RAY_TMPDIR=folder)
    assert running.wait(SECONDS) == -9
    assert not running.wait_for_others(15)
    shutil.rmtree(folder, ignore_errors=True)
    record("signals: Ray", 0, 1)


@pytest.mark.fault
@pytest.mark.parametrize("name", SIGNALS)
def test_a_second_signal_stops_at_once(name, tmp_path):
    record("signals: second signal", 1, 0)
    number, out = SIGNALS[name], tmp_path / "run"
    words = [f"{MODULE}:Misbehaving-v0", *SEARCH, "--env-options", "fault=step hangs"]
    running = shared_zygote().start("train", *words, *options(STEPS, out))
    deadline = time.monotonic() + SECONDS
    while not (out / "checkpoints" / "000000").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    running.send(number)
    assert not running.ended(0.5)
    running.send(number)
    assert running.wait(10) == 128 + number
    assert "trellis resume" in running.output
    load_latest(out / "checkpoints")
    record("signals: second signal", 0, 1)


@pytest.mark.fault
def test_a_terminal_that_goes_away(tmp_path):
    """The kernel signals the whole session, and nothing can be printed any more."""
    record("signals: closed terminal", 1, 0)
    out = tmp_path / "run"
    words = ["train", f"{MODULE}:Misbehaving-v0", *SEARCH, "--env-options", "workers=2"]
    arguments = [str(word) for word in [*words, *options(10**7, out)]]
    pid, terminal = pty.fork()
    if pid == 0:
        for number in SIGNALS.values():  # Under nohup some are ignored.
            signal.signal(number, signal.SIG_DFL)
        os.chdir(ROOT)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        os.execve(sys.executable, [sys.executable, "-m", "trellis", *arguments], environment)
    deadline = time.monotonic() + SECONDS
    while not (out / "checkpoints" / "000002").exists():
        assert time.monotonic() < deadline
        os.read(terminal, 65536)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    last = load_latest(out / "checkpoints").iteration
    assert last == read_metrics(out)[-1]["iteration"], "the checkpoint of the last iteration"
    time.sleep(1.0)
    assert not [path for path in Path("/proc").glob("[0-9]*") if _session(path) == pid]
    record("signals: closed terminal", 0, 1)


def _session(path):
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0
