"""The folder that `trellis share` writes: whole, loadable, and readable by the hub."""

import dataclasses
import json
import shutil
import sys
import types

import numpy as np
import pytest
import yaml

from trellis import SavedPolicy
from trellis.analysis.publish import read_card
from trellis.analysis.share import model_card, require_repository
from trellis.cli.main import main
from trellis.policies.pretrained import FOLDER


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    run = folder / "run"
    shutil.copytree(FOLDER / "CartPole-v1", run)
    (run / "video.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    assert main(["share", str(run), "--to", str(folder / "out"), "--episodes", "2"]) == 0
    return run, folder / "out"


def test_the_folder_is_whole(shared):
    run, out = shared
    files = {path.relative_to(out).parts[0] for path in out.rglob("*") if path.is_file()}
    expected = {"README.md", "config.json", "checkpoints", "results.json", "replay.mp4"}
    assert files == {*expected, ".gitattributes"}
    assert (out / "replay.mp4").read_bytes() == (run / "video.mp4").read_bytes()
    np.testing.assert_array_equal(SavedPolicy.load(out).theta, SavedPolicy.load(run).theta)
    assert main(["eval", str(out), "--episodes", "1"]) == 0


def test_the_metadata_is_what_the_hub_reads(shared):
    _, out = shared
    _, front, body = (out / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata["library_name"] == "trellis"
    assert {"reinforcement-learning", "CartPole-v1", "trpo"} <= set(metadata["tags"])
    (result,) = metadata["model-index"][0]["results"]
    assert result["dataset"]["name"] == "CartPole-v1"
    assert result["metrics"][0]["type"] == "mean_reward"
    assert result["metrics"][0]["value"] == "500.00 +/- 0.00"
    assert 'src="replay.mp4"' in body
    assert read_card(out).command in body
    assert '"max_kl": 0.01' in body


def test_texts_of_a_run_stay_texts():
    saved = SavedPolicy.pretrained("CartPole-v1")
    evil = '"]\n---\n`<script>`|```'
    config = dataclasses.replace(saved.config, env_options={"x": "```\n<script>"})
    card = dataclasses.replace(read_card(FOLDER / "CartPole-v1"), env=evil)
    text = model_card(dataclasses.replace(saved, config=config), card)
    front = text.split("---\n", 2)[1]
    assert yaml.safe_load(front)["tags"][-1] == evil
    assert "`<script>`" not in text.split("\n---\n", 1)[1]
    assert "````json" in text  # A fence that is longer than the one in the settings.


@pytest.mark.parametrize("env_id", ["CartPole-v1", "trellis/CartPoleNoVelocity-v0"])
def test_the_lines_of_the_card_run(env_id):
    """The code for a policy with memory is another one."""
    saved = SavedPolicy.pretrained(env_id)
    text = model_card(saved, read_card(FOLDER / env_id))
    code = text.split("```python\n")[1].split("```")[0]
    names = {"observation": np.zeros(saved.spaces[0].shape)}
    exec(code.replace("path/to/this/folder", str(FOLDER / env_id)), names)
    assert saved.spaces[1].contains(names["action"])


def test_a_video_that_cannot_be_made_is_a_warning(tmp_path, monkeypatch, capsys):
    from trellis.analysis import video

    def fail(*_, **__):
        raise video.NoPictureError("no display")

    monkeypatch.setattr(video, "record", fail)
    run = str(FOLDER / "CartPole-v1")
    assert main(["share", run, "--to", str(tmp_path / "out"), "--episodes", "1"]) == 0
    assert "there is no video: no display" in capsys.readouterr().err
    assert not (tmp_path / "out" / "replay.mp4").exists()
    assert "<video" not in (tmp_path / "out" / "README.md").read_text()


class FakeHub:
    def __init__(self):
        self.calls = []

    def create_repo(self, name, exist_ok):
        self.calls.append((name, exist_ok))

    def upload_folder(self, *, repo_id, folder_path):
        self.calls.append((repo_id, folder_path))


SHARE = ["share", str(FOLDER / "CartPole-v1"), "--episodes", "1", "--no-video", "--upload", "me/it"]


def test_it_uploads_with_the_extra(tmp_path, monkeypatch, capsys):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(HfApi=lambda: hub))
    assert main([*SHARE, "--to", str(tmp_path / "out")]) == 0
    assert hub.calls == [("me/it", True), ("me/it", str(tmp_path / "out"))]
    assert "https://huggingface.co/me/it" in capsys.readouterr().out


def test_a_failed_upload_leaves_the_folder(tmp_path, monkeypatch, capsys):
    class Refuses(FakeHub):
        def create_repo(self, name, exist_ok):
            raise OSError("401 Unauthorized")

    refuses = types.SimpleNamespace(HfApi=Refuses)
    monkeypatch.setitem(sys.modules, "huggingface_hub", refuses)
    assert main([*SHARE, "--to", str(tmp_path / "out")]) != 0
    error = capsys.readouterr().err
    assert "not uploaded" in error
    assert "token" in error
    assert json.loads((tmp_path / "out" / "results.json").read_text())["env"] == "CartPole-v1"


def test_what_is_missing_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main([*SHARE, "--to", str(tmp_path / "out")]) == 2
    assert "trellis-rl[hub]" in capsys.readouterr().err
    with pytest.raises(ValueError, match="USER/NAME"):
        require_repository("../x")
    (tmp_path / "file").write_text("")
    assert main([*SHARE[:5], "--to", str(tmp_path / "file")]) == 2
    assert "not a folder" in capsys.readouterr().err
