"""A sweep at the size of a test: it runs what is missing, once, and writes what was found."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from trellis.cli.main import main
from trellis.reproduce import sweep
from trellis.reproduce.sweep import RunPlan, complaint, execute
from trellis.reproduce.training import experiment as training
from trellis.reproduce.training.experiment import Task
from trellis.runs import checkpoint
from trellis.runs.log import read_metrics


def test_a_sweep_runs_what_is_missing_and_writes_what_it_found(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EPISODES", 2)
    said: list[str] = []
    task = Task("CartPole-v1", 2048, 500)
    found = training.run(
        tmp_path / "out", 1, said.append, runs=tmp_path / "runs", tasks=[task], parallel=1
    )
    assert said[0] == "0 of 1 runs are finished"
    execute(training._plans(task, 1, tmp_path / "runs"), 1, said.append)
    assert "1 of 1 runs are finished" in said
    assert len([line for line in said if "CartPole-v1-20 finished" in line]) == 1

    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["tasks"] == found
    assert record["command"].startswith("trellis reproduce training --seeds 1")
    (row,) = found[0]["runs"]
    assert row["seed"] == 20
    assert row["steps"] == 2048
    assert 5 < found[0]["first_return"] < 100
    assert found[0]["interval_95"] == [None, None]  # of one seed
    assert found[0]["mean_return"] == row["mean_return"] > 5
    with (tmp_path / "out" / "training.csv").open() as file:
        assert [line["env"] for line in csv.DictReader(file)] == ["CartPole-v1"]
    assert (tmp_path / "out" / "curves.png").stat().st_size > 1000


def test_a_run_that_fails_is_told_after_the_others(tmp_path):
    plan = RunPlan(tmp_path / "run", "NoSuchEnvironment-v0", 0)
    with pytest.raises(RuntimeError, match="some runs failed"):
        execute([plan], 1, lambda _: None)


def test_of_a_failure_its_whole_message_is_told():
    warned = "warning: beware\niteration 1\n"
    message = "trellis: OSError: the disk is gone\nThe last checkpoint is intact"
    assert complaint(warned + message + "\n") == message
    assert complaint("Traceback\nSegmentation fault\n") == "Traceback\nSegmentation fault"
    assert complaint("") == "it died without a word"


@pytest.mark.parametrize(
    "arguments",
    [
        "training --scale 0.5",
        "cartpole --tasks hopper",
        "theory --parallel 4",
        "ablations --games x",
    ],
)
def test_an_option_that_would_change_nothing_is_refused(arguments, tmp_path, capsys):
    _, option, _ = arguments.split()
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert f"{option} is an option of" in capsys.readouterr().err


def test_a_run_that_is_killed_says_so(tmp_path, monkeypatch):
    script = "echo iteration 7 >&2; kill -9 $$"
    monkeypatch.setattr(sweep, "_command", lambda _: ["sh", "-c", script])
    with pytest.raises(RuntimeError, match=r"ended by SIGKILL .*memory(.|\n)*iteration 7"):
        execute([RunPlan(tmp_path / "run", "CartPole-v1", 0)], 1, lambda _: None)


@pytest.mark.parametrize(("parallel", "threads"), [(1, "all"), (2, "1")])
def test_runs_side_by_side_compute_with_a_thread_each(tmp_path, monkeypatch, parallel, threads):
    monkeypatch.delenv("NPROC", raising=False)
    script = "echo trellis: threads ${NPROC:-all} >&2; exit 1"
    monkeypatch.setattr(sweep, "_command", lambda _: ["sh", "-c", script])
    with pytest.raises(RuntimeError, match=f"threads {threads}$"):
        execute([RunPlan(tmp_path / "run", "CartPole-v1", 0)], parallel, lambda _: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_sweep_alone_reaches_its_runs_however_early(tmp_path, monkeypatch, number):
    """It comes while the process of a run is being started."""
    monkeypatch.setattr(sweep, "_command", lambda _: ["sleep", "60"])
    real = subprocess.Popen

    def slow(*args, **options):
        os.kill(os.getpid(), number)
        time.sleep(0.3)
        return real(*args, **options)

    monkeypatch.setattr(sweep.subprocess, "Popen", slow)
    began, said = time.monotonic(), []
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        execute([RunPlan(tmp_path / "run", "CartPole-v1", 0)], 1, said.append)
    # So early that the pool may not know of its thread yet, nor wait for it.
    while len(said) < 2:
        assert time.monotonic() - began < 20
        time.sleep(0.05)
    assert said[1] == f"{tmp_path / 'run'} stopped; the same command goes on with it"


@pytest.mark.slow
def test_a_sweep_that_is_terminated_stops_its_runs(tmp_path):
    run = tmp_path / "run"
    program = (
        "from pathlib import Path; from trellis.reproduce.sweep import RunPlan, execute;"
        f"execute([RunPlan(Path({str(run)!r}), 'CartPole-v1', 0)], 1, print)"
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
    assert checkpoint.load_latest(run / "checkpoints").values["steps"] == steps
