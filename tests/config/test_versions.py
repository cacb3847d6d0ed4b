"""Settings of earlier schema versions are read as what they meant."""

import json
import shutil
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.test_old_runs import RUNS
from trellis import strict_json
from trellis.checkpoint_format import load_latest
from trellis.cli.main import main
from trellis.config import StepConfig, TrainConfig, from_json, to_json
from trellis.config import versions as config_versions
from trellis.config.file import CHECKSUM, load_config, read_run_config
from trellis.config.versions import RenamedSettingWarning


@pytest.fixture(autouse=True)
def fresh_notice(monkeypatch):
    monkeypatch.setattr(config_versions, "_NOTICED", [])


def old_json(method: str) -> dict:
    return {**to_json(TrainConfig("CartPole-v1", step=StepConfig(method))), "schema_version": 1}


def test_the_old_max_kl_is_max_kl_step_and_says_so_once():
    with pytest.warns(RenamedSettingWarning, match="max-kl-step") as noticed:
        methods = [from_json(old_json("max-kl")).step.method for _ in range(2)]
    assert methods == ["max-kl-step", "max-kl-step"]
    assert len(noticed) == 1


def test_other_methods_and_the_new_max_kl_stay():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_json(old_json("trpo")).step.method == "trpo"
        now = to_json(TrainConfig("CartPole-v1", step=StepConfig("max-kl")))
        assert from_json(now).step.method == "max-kl"


@pytest.mark.parametrize("version", [0, 4, None, "1", True])
def test_unknown_versions_are_refused(version):
    values = {**to_json(TrainConfig("CartPole-v1")), "schema_version": version}
    with pytest.raises(ValueError, match="schema_version must be 1 to 3"):
        from_json(values)


@pytest.mark.parametrize(
    ("env", "options", "rule"),
    [
        ("CarRacing-v3", {}, "frames-first"),
        ("mine:Mine-v0", {}, "frames-first"),
        ("ALE/Pong-v5", {"obs_type": "rgb"}, "frames-first"),
        ("ale_py:ALE/Pong-v5", {}, "convolve"),
        ("Hopper-v5", {}, "convolve"),
    ],
)
def test_pictures_of_earlier_versions_stay_as_they_were(env, options, rule):
    values = {**to_json(TrainConfig(env, options)), "schema_version": 2}
    del values["policy"]["pictures"]
    assert from_json(values).policy.pictures == rule
    assert from_json({**values, "schema_version": 3}).policy.pictures == "convolve"


def test_a_config_file_of_version_1_is_converted(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(old_json("max-kl")))
    with pytest.warns(RenamedSettingWarning):
        assert load_config(path).step.method == "max-kl-step"


def with_method(folder, method, version):
    """Rewrite the settings of an old run, which have no checksum."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values.pop(CHECKSUM, None)
    values["schema_version"], values["step"]["method"] = version, method
    path.write_text(json.dumps({**values, CHECKSUM: strict_json.digest(values)}))


@pytest.mark.slow
def test_an_old_run_resumes_bit_for_bit_as_max_kl_step(tmp_path, capsys):
    thetas, texts = [], []
    for method, version in (("max-kl", 1), ("max-kl-step", 2)):
        run = shutil.copytree(RUNS / "cartpole", tmp_path / f"version-{version}")
        with_method(run, method, version)
        assert main(["resume", str(run)]) == 0
        texts.append(capsys.readouterr().err)
        newest = max((run / "checkpoints").iterdir())
        thetas.append(load_file(newest / "arrays.safetensors")["theta"])
        assert read_run_config(run).step.method == "max-kl-step"
        assert load_latest(run / "checkpoints").config["step"]["method"] == "max-kl-step"
    assert thetas[0].tobytes() == thetas[1].tobytes()
    assert np.isfinite(thetas[0]).all()
    assert [text.count("now called max-kl-step") for text in texts] == [1, 0]
