"""Trackers get settings and grouped numbers, offline, and a resumed run continues its record."""

import json
import sys
import types

import pytest

from tests.docs import metrics
from trellis.callbacks import Track
from trellis.config import (
    EstimationConfig,
    PolicyConfig,
    SamplingConfig,
    StepConfig,
    TrainConfig,
)
from trellis.runs import run, trackers
from trellis.runs.tags import scalars, tag
from trellis.runs.trainers import make_trainer


def small(**changes) -> TrainConfig:
    return TrainConfig(
        "CartPole-v1",
        **{
            "total_steps": 512,
            "eval_every": 0,
            "eval_episodes": 1,
            "policy": PolicyConfig(hidden=(16,)),
            "step": StepConfig(max_kl=0.05),
            "sampling": SamplingConfig(num_envs=8, steps_per_env=32),
            "estimation": EstimationConfig(
                critic_hidden=(16,), critic_epochs=2, critic_minibatch=64
            ),
            **changes,
        },
    )


@pytest.mark.parametrize(
    ("name", "tagged"),
    [
        ("episode_return_mean", "rollout/episode_return_mean"),
        ("episodes", "rollout/episodes"),
        ("rollout_length_mean", "rollout/rollout_length_mean"),
        ("kl", "step/kl"),
        ("step_fraction", "step/step_fraction"),
        ("critic_loss", "critic/loss"),
        ("explained_variance", "critic/explained_variance"),
        ("steps", "time/steps"),
        ("steps_per_second", "time/steps_per_second"),
        ("seconds_update", "time/seconds_update"),
        ("eval_return_mean", "eval/return_mean"),
        ("search_std", "search/std"),
        ("klingon", "other/klingon"),
        ("mine/number", "mine/number"),
    ],
)
def test_metrics_are_grouped(name, tagged):
    assert tag(name) == tagged


def test_every_metric_has_a_group_and_a_name_of_its_own():
    numbers = metrics.described() - {"checksum", "status"}
    tags = {tag(name) for name in numbers}
    assert len(tags) == len(numbers)
    assert not [name for name in tags if name.startswith("other/")]
    assert scalars({"kl": 1, "status": "accepted", "max_kl": float("nan")}) == {"step/kl": 1.0}


class FakeRun:
    def __init__(self, calls, options):
        self.calls, self.id = calls, options["id"] or "abc123"
        calls.append(("init", options))

    def log(self, values, step):
        self.calls.append(("log", step, values))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def wandb(monkeypatch):
    """The calls of a module that is used like wandb."""
    calls = []
    module = types.SimpleNamespace(init=lambda **options: FakeRun(calls, options))
    monkeypatch.setitem(sys.modules, "wandb", module)
    return calls


@pytest.mark.slow
def test_wandb_gets_settings_and_numbers_and_a_resumed_run_continues_its_record(tmp_path, wandb):
    folder = tmp_path / "run"
    trainer = make_trainer(small())
    run.train(trainer, folder, quiet=True, callbacks=[Track("wandb")])
    trainer.close()
    (_, options), *logged, last = wandb
    assert (options["project"], options["name"], options["dir"]) == ("trellis", "run", str(folder))
    assert options["config"]["step.max_kl"] == 0.05
    assert options["resume"] is None
    assert [entry[1] for entry in logged] == [256, 512]
    assert {"rollout/episodes", "step/kl", "critic/loss", "time/iteration"} <= logged[0][2].keys()
    assert last == ("finish",)
    assert json.loads((folder / "tracking.json").read_text()) == {"wandb": "abc123"}
    wandb.clear()
    run.resume(folder, steps=768, quiet=True, callbacks=[Track("wandb")])
    assert (wandb[0][1]["id"], wandb[0][1]["resume"]) == ("abc123", "allow")
    assert [entry[1] for entry in wandb[1:-1]] == [768]


def test_a_tracker_that_fails_does_not_stop_training(tmp_path, wandb, monkeypatch):
    def fail(self, values, step):
        raise ConnectionError("the network is gone")

    monkeypatch.setattr(FakeRun, "log", fail)
    trainer = make_trainer(small())
    with pytest.warns(UserWarning, match="wandb failed .*network is gone.*continues without it"):
        state = run.train(trainer, tmp_path / "run", quiet=True, callbacks=[Track("wandb")])
    trainer.close()
    assert state.steps == 512
    assert ("finish",) not in wandb


class FakeClient:
    """What the tracker uses of `mlflow.MlflowClient`."""

    calls: list = []  # noqa: RUF012

    def __init__(self, tracking_uri):
        self.calls.append(("uri", tracking_uri))

    def __getattr__(self, name):
        def call(*args, **options):
            self.calls.append((name, args, options))
            info = types.SimpleNamespace(run_id="f00")
            return None if name.startswith("get") else types.SimpleNamespace(info=info)

        return call


def test_mlflow_gets_settings_and_numbers(tmp_path, monkeypatch):
    entities = types.SimpleNamespace(Metric=lambda *a: a, Param=lambda *a: a)
    module = types.SimpleNamespace(MlflowClient=FakeClient, entities=entities)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = trackers.MlflowTracker(small(), tmp_path, "mine")
    tracker.log({"steps": 256, "kl": 0.5, "status": "accepted"})
    tracker.close()
    calls = FakeClient.calls
    assert calls[0] == ("uri", f"sqlite:///{tmp_path / 'mlflow.db'}")
    names = [name for name, *_ in calls]
    assert names[1:4] == ["get_experiment_by_name", "create_experiment", "create_run"]
    assert ("step.max_kl", "0.05") in calls[4][2]["params"]
    (_, (record,), logged), ended = calls[5:]
    assert record == "f00"
    assert [(m[0], m[1], m[3]) for m in logged["metrics"]] == [
        ("time/steps", 256.0, 256),
        ("step/kl", 0.5, 256),
    ]
    assert ended[:2] == ("set_terminated", ("f00",))
    calls.clear()
    trackers.MlflowTracker(small(), tmp_path, "mine")
    assert [name for name, *_ in calls] == ["uri", "update_run"]


def test_a_tracker_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"pip install 'trellis-rl\[wandb\]'"):
        Track("wandb")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'trellis-rl\[tensorboard\]'"):
        Track("tensorboard")
    with pytest.raises(ValueError, match="no tracker 'comet'; there are wandb, mlflow, tensorb"):
        Track("comet")


@pytest.mark.parametrize("text", ['{"wandb": "../../x"}', '{"wandb": 3}', "[]"])
def test_an_id_from_a_run_folder_is_not_trusted(tmp_path, text):
    (tmp_path / "tracking.json").write_text(text)
    assert trackers.read_id(tmp_path, "wandb") is None


def test_tensorboard_without_a_run_folder(tmp_path):
    pytest.importorskip("tensorboardX")
    tracker = trackers.TensorBoardTracker(small(), None, "mine", out=tmp_path)
    tracker.log({"steps": 1, "kl": 0.5})
    tracker.close()
    (path,) = (tmp_path / "mine" / "tensorboard").iterdir()
    assert b"step/kl" in path.read_bytes()


@pytest.mark.slow
def test_the_real_packages_work_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    trainer = make_trainer(small())
    run.train(trainer, tmp_path / "run", quiet=True, callbacks=[Track("wandb"), Track("mlflow")])
    trainer.close()
    ids = json.loads((tmp_path / "run" / "tracking.json").read_text())
    assert list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{ids['wandb']}/*.wandb"))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert client.get_run(ids["mlflow"]).info.status == "FINISHED"
    history = client.get_metric_history(ids["mlflow"], "step/kl")
    assert [metric.step for metric in history] == [256, 512]


def train_and_resume(folder, name):
    """Train with a real tracker, then resume the run with it."""
    trainer = make_trainer(small())
    run.train(trainer, folder, quiet=True, callbacks=[Track(name)])
    trainer.close()
    run.resume(folder, steps=768, quiet=True, callbacks=[Track(name)])
    return json.loads((folder / "tracking.json").read_text())[name]


@pytest.mark.slow
def test_the_real_mlflow_continues_the_record_of_a_resumed_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    record = train_and_resume(tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    logged = client.get_metric_history(record, "step/kl")
    assert [entry.step for entry in logged] == [256, 512, 768]
    found = client.get_run(record)
    assert found.info.status == "FINISHED"
    assert found.data.params["step.max_kl"] == "0.05"
    experiment = client.get_experiment_by_name("trellis")
    assert len(client.search_runs([experiment.experiment_id])) == 1


@pytest.mark.slow
def test_the_real_wandb_continues_the_record_of_a_resumed_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    record = train_and_resume(tmp_path / "run", "wandb")
    written = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert len(written) == 2
    assert {path.name.rpartition("-")[2] for path in written} == {record}
    assert all(list(path.glob("*.wandb")) for path in written)
