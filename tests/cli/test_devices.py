"""`--device` and `--devices`: what they set before JAX starts, what they print and refuse."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from tests.envs.jax.environments import Walk
from trellis import envs
from trellis.cli import devices
from trellis.cli import train as training
from trellis.cli.main import main
from trellis.config import SamplingConfig, StepConfig, TrainConfig
from trellis.runs import run, trainers

OTHER = "tpu" if jax.default_backend() == "gpu" else "gpu"
"""A kind of device that this machine does not have, or does not use."""


class StopError(ValueError):
    """Ends a command where a test has seen enough."""


@pytest.fixture(autouse=True)
def settings_of_jax(monkeypatch):
    """Removes what the machine sets, and undoes what a test sets."""
    for name in ("JAX_PLATFORMS", "XLA_FLAGS", "NPROC"):
        monkeypatch.setenv(name, "")  # So that it is undone, even if a test sets it.
        monkeypatch.delenv(name)
    before = jax.config.jax_platforms
    yield
    jax.config.update("jax_platforms", before)


@pytest.fixture
def fake_devices(monkeypatch):
    """Makes JAX find devices of a kind and model."""

    def fake(platform, device_kind, count=1):
        found = [SimpleNamespace(platform=platform, device_kind=device_kind)] * count
        monkeypatch.setattr(jax, "devices", lambda: found)

    return fake


def refused(capsys, *args):
    """Returns the one line of a command that cannot run with these arguments."""
    capsys.readouterr()
    assert main([*map(str, args)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def in_new_process(*args):
    """Runs a command in a process whose JAX has not started."""
    clean = {k: v for k, v in os.environ.items() if k not in ("JAX_PLATFORMS", "XLA_FLAGS")}
    command = [sys.executable, "-c", "import sys, trellis.cli.main as m; sys.exit(m.main())", *args]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("count", [0, -2])
def test_an_invalid_number_changes_nothing(count):
    with pytest.raises(ValueError, match=f"devices must be at least 1, got {count}"):
        devices.choose_devices("cpu", count)
    assert not {"JAX_PLATFORMS", "XLA_FLAGS"} & os.environ.keys()


def test_invalid_numbers_and_kinds_are_one_line(capsys):
    line = refused(capsys, "train", "CartPole-v1", "--devices", "0")
    assert "devices must be at least 1, got 0" in line
    line = refused(capsys, "train", "CartPole-v1", "--devices", "two")
    assert "--devices must be a whole number, got 'two'" in line
    line = refused(capsys, "train", "CartPole-v1", "--device", "cuda")
    assert "--device must be one of" in line
    assert "got 'cuda'" in line
    assert all(kind in line for kind in ("cpu", "gpu", "tpu"))


def test_virtual_devices_are_an_option_of_xla(monkeypatch):
    devices.choose_devices(None, 4)
    assert os.environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=4"
    assert "JAX_PLATFORMS" not in os.environ
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    devices.choose_devices("cpu", 2)
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_cpu_enable_fast_math=false",
        "--xla_force_host_platform_device_count=2",
    ]
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    # The user's own number stays.
    devices.choose_devices("cpu", 8)
    assert os.environ["XLA_FLAGS"].endswith("device_count=2")


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_real_devices_are_not_multiplied(kind):
    devices.choose_devices(kind, 4)
    assert "XLA_FLAGS" not in os.environ
    assert os.environ["JAX_PLATFORMS"] == kind


def test_without_options_nothing_is_set_and_jax_does_not_start(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: pytest.fail("JAX has started"))
    devices.choose_devices(None, None)
    devices.require_device(None)
    assert not {"JAX_PLATFORMS", "XLA_FLAGS"} & os.environ.keys()


def test_a_device_that_jax_has(fake_devices):
    fake_devices("gpu", "NVIDIA A100")
    devices.require_device("gpu")
    assert jax.config.jax_platforms == "gpu"


def test_a_device_that_jax_lacks(monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'tpu': line 1\nline 2")

    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(ValueError, match=r"^JAX finds no tpu here; install .*--device cpu$"):
        devices.require_device("tpu")


def test_a_device_after_jax_has_started_on_another(fake_devices):
    fake_devices("cpu", "cpu")
    with pytest.raises(ValueError, match="already uses the cpu; start a new process"):
        devices.require_device("gpu")


def test_the_command_line_says_which_device_is_missing(tmp_path):
    done = in_new_process("train", "CartPole-v1", "--device", OTHER, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr == (
        f"trellis: JAX finds no {OTHER} here; install the JAX of this device, or use --device cpu\n"
    )
    assert not (tmp_path / "run").exists()


def test_virtual_devices_exist_before_jax_starts():
    # Devices are counted first, so the environment is refused only if there are three.
    done = in_new_process(
        *("train", "CartPole-v1", "--device", "cpu", "--devices", "3"),
        *("--sampling.num-envs", "3", "--sampling.steps-per-env", "8"),
    )
    assert done.returncode == 2
    assert done.stderr == (
        "trellis: iterations cannot run on 3 devices, because the environment is not written in"
        " JAX\n"
    )


def test_more_devices_than_there_are(capsys, fake_devices):
    fake_devices("gpu", "NVIDIA A100", 2)
    line = refused(capsys, "train", "CartPole-v1", "--devices", 4)
    assert "there are 2 devices, not 4: use fewer --devices" in line


@pytest.mark.parametrize(
    ("options", "shards"), [([], 4), (["--shards", "2"], 2), (["--sampling.shards", "2"], 2)]
)
def test_there_is_one_shard_per_device_unless_the_user_says(options, shards, monkeypatch, capsys):
    found = {}

    def make_trainer(config, **where):
        found.update(where, shards=config.sampling.shards)
        raise StopError("seen enough")

    monkeypatch.setattr(trainers, "make_trainer", make_trainer)
    refused(capsys, "train", "CartPole-v1", "--devices", 4, *options)
    assert found == {"cluster": None, "workers": None, "devices": 4, "shards": shards}


def test_without_devices_shards_stay():
    config = TrainConfig("CartPole-v1", sampling=SamplingConfig(shards=2))
    assert devices.with_shards(config, None, ()) is config
    assert devices.with_shards(config, 4, ()).sampling.shards == 4
    assert devices.with_shards(config, 4, {"seed"}).sampling.shards == 4
    assert devices.with_shards(config, 4, {"sampling.shards"}) is config


def test_other_shards_than_devices_are_refused():
    config = TrainConfig("test/env", sampling=SamplingConfig(shards=2, num_envs=4))
    with pytest.raises(ValueError, match="because 2 shards need as many devices"):
        trainers.make_trainer(config, lambda count: envs.make(Walk(), count), devices=1)


@pytest.mark.parametrize(
    ("options", "others"),
    [
        (["--cluster", "local"], ["--cluster"]),
        (["--seeds", "2"], ["--seeds"]),
        (["--method", "cem"], ["--method cem"]),
        (["--method", "cma", "--shards", "1"], ["--method cma"]),
    ],
)
def test_options_that_exclude_devices(options, others, capsys):
    line = refused(capsys, "train", "CartPole-v1", "--devices", 2, *options)
    assert "exclude each other; leave out" in line
    assert all(name in line for name in ["--devices", *others])


def test_resume_refuses_devices_of_a_search(monkeypatch, capsys, tmp_path):
    config = TrainConfig("CartPole-v1", step=StepConfig(method="cem"))
    monkeypatch.setattr(training, "config_of", lambda folder: config)
    line = refused(capsys, "resume", tmp_path, "--devices", 2)
    assert "--devices and --method cem exclude each other" in line


def test_resume_refuses_devices_of_several_seeds(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("trellis.runs.seeds.is_group", lambda folder: True)
    line = refused(capsys, "resume", tmp_path, "--devices", 2)
    assert "leave out --devices" in line


def test_threads_are_pinned_before_jax_starts(monkeypatch, capsys, tmp_path):
    """XLA reads NPROC once; too late, sums depend on the number of cores."""
    seen = []

    def start(kind):
        seen.append((kind, os.environ.get("NPROC")))
        raise StopError("seen enough")

    monkeypatch.setattr(training, "require_device", start)
    config = TrainConfig("CartPole-v1", sampling=SamplingConfig(shards=2))
    monkeypatch.setattr(training, "config_of", lambda folder: config)
    refused(capsys, "train", "CartPole-v1", "--device", "cpu", "--devices", 2)
    monkeypatch.delenv("NPROC")
    refused(capsys, "train", "CartPole-v1", "--device", "cpu", "--shards", 2)
    monkeypatch.delenv("NPROC")
    refused(capsys, "resume", tmp_path, "--device", "cpu")
    assert seen == [("cpu", "1")] * 3


@pytest.mark.parametrize(
    ("found", "kind", "count", "text"),
    [
        (("cpu", "cpu"), None, None, ""),
        (("cpu", "cpu"), "cpu", None, "Device: CPU"),
        (("cpu", "cpu"), None, 1, "Device: CPU"),
        (("cpu", "cpu"), None, 8, "Devices: 8 virtual CPUs"),
        (("gpu", "NVIDIA A100"), None, None, "Device: GPU (NVIDIA A100)"),
        (("gpu", "NVIDIA A100"), "gpu", 4, "Devices: 4 × GPU (NVIDIA A100)"),
        (("tpu", "TPU v4"), "tpu", 1, "Device: TPU (TPU v4)"),
    ],
)
def test_devices_in_words(found, kind, count, text, fake_devices):
    fake_devices(*found, count or 1)
    assert devices.describe_devices(kind, count) == text


@pytest.mark.parametrize("options", [[], ["--device", "cpu"]])
def test_training_says_which_device_it_uses_if_asked(options, monkeypatch, capsys, tmp_path):
    if jax.default_backend() != "cpu":
        pytest.skip("JAX does not use the CPU here")

    def stop(*args, **kwargs):
        raise StopError("seen enough")

    monkeypatch.setattr(run, "train", stop)
    assert main(["train", "CartPole-v1", "--out", str(tmp_path / "run"), *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Training CartPole-v1")
    assert ("Device: CPU" in lines) == bool(options)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_on_two_devices_resumes(tmp_path):
    pytest.importorskip("gymnax")
    folder = tmp_path / "run"
    small = ["--sampling.num-envs", "4", "--sampling.steps-per-env", "16", "--policy.hidden", "8"]
    small += ["--estimation.critic-epochs", "1", "--eval-episodes", "2", "--steps", "128"]
    done = in_new_process(
        *("train", "gymnax/CartPole-v1", "--devices", "2", "--out", str(folder), *small)
    )
    assert done.returncode == 0, done.stderr
    assert "Devices: 2 virtual CPUs" in done.stderr.splitlines()
    done = in_new_process("resume", str(folder), "--devices", "2", "--steps", "192")
    assert done.returncode == 0, done.stderr
    assert "Trained for 192 steps in 3 iterations." in done.stdout
