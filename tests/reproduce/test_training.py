"""A sweep at the size of a test: it runs what is missing, once, and writes what was found."""

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.reproduce.pages import check_page
from trellis import checkpoint_format, presets
from trellis.reproduce import sweep
from trellis.reproduce.files import ResultsError
from trellis.reproduce.kept_runs import KeptRuns
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import execute, failure_message
from trellis.reproduce.training import experiment as training
from trellis.runs.folder import RunExistsError, RunLockedError
from trellis.runs.log import read_metrics

CARTPOLE = presets.resolve("CartPole-v1")


@pytest.mark.slow
def test_a_sweep_runs_what_is_missing_and_writes_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EPISODES", 2)
    said: list[str] = []
    task = training.TrainingTask("CartPole-v1", 2048, 500)
    runs, out = tmp_path / "runs", tmp_path / "out"
    experiment = training.Training(out, seeds=1, runs=runs, parallel=1)
    found = experiment.run(said.append, [task])
    assert said[0] == "0 of 1 runs are kept"
    assert len([line for line in said if "CartPole-v1-30 finished" in line]) == 1

    record = json.loads((out / "training.json").read_text())
    assert record["tasks"] == found
    assert record["command"] == (
        f"trellis reproduce training --out {out} --seeds 1 --runs {runs} --parallel 1"
    )
    (row,) = found[0]["runs"]
    assert row["seed"] == 30
    assert row["steps"] == 2048
    assert 5 < found[0]["first_return"] < 100
    assert found[0]["interval_95"] == [None, None]  # of one seed
    assert found[0]["mean_return"] == row["mean_return"] > 5
    with (out / "training.csv").open() as file:
        assert [line["env"] for line in csv.DictReader(file)] == ["CartPole-v1"]
    assert (out / "curves.png").stat().st_size > 1000
    assert (out / "curves.svg").stat().st_size > 1000
    page = check_page(out)
    assert "| CartPole-v1 | 2,048 |" in page
    assert "| 500 | no |" in page
    # The page and the figure need the data files alone, and include remarks.
    (out / "notes.md").write_text("## Remarks\n\nIt was late.\n")
    shutil.rmtree(runs)
    dataclasses.replace(experiment, report_only=True).write_pages()
    assert "It was late." in check_page(out)
    assert json.loads((out / "training.json").read_text()) == record
    # A finished run is not repeated when its folder is lost.
    again = experiment.run(said.append, [task])
    assert said[-1] == "1 of 1 runs are kept"
    assert again == found
    assert not runs.exists()
    # Other settings are another run.
    other = dataclasses.replace(experiment.plans(task)[0].config, total_steps=4096)
    assert KeptRuns(out, 2).find(other) is None


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "CartPole-v1.jsonl").write_text('{"env":\n')
    with pytest.raises(ResultsError, match=r"CartPole-v1.jsonl has a line that is not JSON"):
        KeptRuns(tmp_path, 2).of("CartPole-v1")


@pytest.mark.slow
def test_a_run_that_fails_is_told_after_the_others(tmp_path):
    plan = RunPlan(tmp_path / "run", presets.resolve("NoSuchEnvironment-v0"))
    with pytest.raises(RuntimeError, match="some runs failed"):
        execute([plan], 1, lambda _: None)


def test_of_a_failure_its_whole_message_is_told():
    warned = "warning: beware\niteration 1\n"
    message = "trellis: OSError: the disk is gone\nThe last checkpoint is intact"
    assert failure_message(warned + message + "\n") == message
    assert failure_message("Traceback\nSegmentation fault\n") == "Traceback\nSegmentation fault"
    assert failure_message("") == "it failed without a message"


@pytest.mark.parametrize("code", [RunLockedError.exit_code, RunExistsError.exit_code])
def test_a_run_of_another_process_is_waited_for(tmp_path, monkeypatch, code):
    """By the exit code, whatever the message says."""
    tries = tmp_path / "tries"
    script = f"echo x >> {tries}; [ $(wc -l < {tries}) -ge 3 ] || exit {code}"
    monkeypatch.setattr(sweep, "command", lambda _: ["sh", "-c", script])
    monkeypatch.setattr(sweep, "OTHERS_SECONDS", 0.01)
    execute([RunPlan(tmp_path / "run", CARTPOLE)], 1, lambda _: None)
    assert tries.read_text() == "x\n" * 3


def test_a_message_about_another_process_is_not_enough(tmp_path, monkeypatch):
    script = "echo trellis: another process holds a run already >&2; exit 2"
    monkeypatch.setattr(sweep, "command", lambda _: ["sh", "-c", script])
    with pytest.raises(RuntimeError, match="another process holds a run already"):
        execute([RunPlan(tmp_path / "run", CARTPOLE)], 1, lambda _: None)


def test_a_run_that_is_killed_says_so(tmp_path, monkeypatch):
    script = "echo iteration 7 >&2; kill -9 $$"
    monkeypatch.setattr(sweep, "command", lambda _: ["sh", "-c", script])
    with pytest.raises(RuntimeError, match=r"SIGKILL ended it .*memory(.|\n)*iteration 7"):
        execute([RunPlan(tmp_path / "run", CARTPOLE)], 1, lambda _: None)


@pytest.mark.parametrize(("parallel", "threads"), [(1, "all"), (2, "1")])
def test_runs_side_by_side_compute_with_a_thread_each(tmp_path, monkeypatch, parallel, threads):
    monkeypatch.delenv("NPROC", raising=False)
    script = "echo trellis: threads ${NPROC:-all} >&2; exit 1"
    monkeypatch.setattr(sweep, "command", lambda _: ["sh", "-c", script])
    with pytest.raises(RuntimeError, match=f"threads {threads}$"):
        execute([RunPlan(tmp_path / "run", CARTPOLE)], parallel, lambda _: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_sweep_alone_reaches_its_runs_however_early(tmp_path, monkeypatch, number):
    """It comes while the process of a run is being started."""
    monkeypatch.setattr(sweep, "command", lambda _: ["sleep", "60"])
    real = subprocess.Popen

    def slow(*args, **options):
        os.kill(os.getpid(), number)
        time.sleep(0.3)
        return real(*args, **options)

    monkeypatch.setattr(sweep.subprocess, "Popen", slow)
    began, said = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        execute([RunPlan(tmp_path / "run", CARTPOLE)], 1, said.append)
    # So early that the pool may not know of its thread yet, nor wait for it.
    while len(said) < 2:
        assert time.monotonic() - began < 20
        time.sleep(0.05)
    assert said[1] == f"{tmp_path / 'run'} stopped; the same command resumes it"


@pytest.mark.slow
def test_a_sweep_that_is_terminated_stops_its_runs(tmp_path):
    run = tmp_path / "run"
    program = (
        "from pathlib import Path; from trellis import presets;"
        "from trellis.reproduce.run_plan import RunPlan;"
        "from trellis.reproduce.sweep import execute;"
        f"execute([RunPlan(Path({str(run)!r}), presets.resolve('CartPole-v1'))], 1, print)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    metrics = run / "metrics.jsonl"
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    steps = read_metrics(run)[-1]["steps"]
    assert 0 < steps < 100_000
    assert checkpoint_format.load_latest(run / "checkpoints").values["steps"] == steps
