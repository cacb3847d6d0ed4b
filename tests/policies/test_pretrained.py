"""Policies that come with the package: small, whole, and with the scores that they claim."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from trellis import SavedPolicy
from trellis.analysis.publish import read_card
from trellis.cli.main import main
from trellis.policies.pretrained import FOLDER, find_run, pretrained_folder, pretrained_ids
from trellis.safe_files import UnsafeFileError
from trellis.training.evaluation import evaluate_saved

MEGABYTES = 5
IDS = pretrained_ids()


def test_there_are_some_and_they_are_small():
    assert {"CartPole-v1", "Hopper-v5", "InvertedPendulum-v5"} <= set(IDS)
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size < MEGABYTES * 1e6


@pytest.mark.parametrize("env_id", IDS)
def test_each_acts_and_has_a_card(env_id):
    saved = SavedPolicy.pretrained(env_id)
    card = read_card(pretrained_folder(env_id))
    assert (card.env, card.steps, card.seed) == (env_id, saved.steps, saved.config.seed)
    assert card.commit != "unknown"
    assert card.command.startswith(f"trellis train {env_id}")
    observation_space, action_space = saved.spaces
    observation_space.seed(0)
    assert action_space.contains(saved.episode()(observation_space.sample()))
    files = [p.name for p in pretrained_folder(env_id).rglob("*") if p.is_file()]
    assert sorted(files) == ["arrays.safetensors", "config.json", "results.json", "values.json"]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_each_has_its_score(env_id):
    card = read_card(pretrained_folder(env_id))
    result = evaluate_saved(SavedPolicy.pretrained(env_id), card.episodes)
    # Exactly the same on the same CPU model; close everywhere.
    error = 4 * max(card.std_return, 0.01 * abs(card.mean_return)) / np.sqrt(card.episodes)
    assert abs(result.mean_return - card.mean_return) <= error


def test_the_score_of_cartpole():
    assert evaluate_saved(SavedPolicy.pretrained("CartPole-v1"), 3).mean_return == 500


def test_an_unknown_one_names_others():
    with pytest.raises(ValueError, match="the nearest: Hopper-v5"):
        SavedPolicy.pretrained("Hopper-v4")
    with pytest.raises(ValueError, match=r"no pretrained policy for '\.\./\.\./etc'"):
        SavedPolicy.pretrained("../../etc")


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_run("pretrained/Hopper-v5") == FOLDER / "Hopper-v5"
    assert find_run("runs/Hopper-v5") == Path("runs/Hopper-v5")
    assert find_run("pretrained") == Path("pretrained")
    mine = tmp_path / "pretrained" / "Hopper-v5"
    mine.mkdir(parents=True)
    assert find_run("pretrained/Hopper-v5") == Path("pretrained/Hopper-v5")


def test_commands_take_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "pretrained/CartPole-v1", "--episodes", "2"]) == 0
    assert "return 500.0" in capsys.readouterr().out
    assert main(["export", "pretrained/CartPole-v1", "--format", "numpy"]) == 0
    assert (tmp_path / "CartPole-v1.npz").exists()
    assert main(["eval", "pretrained/CartPole-v9"]) == 2
    assert "the nearest: CartPole-v1" in capsys.readouterr().err


def test_one_is_added_replaced_and_listed(tmp_path, capsys):
    run, folder = str(FOLDER / "CartPole-v1"), tmp_path / "policies"
    for _ in range(2):
        assert main(["pretrained", run, "--to", str(folder), "--episodes", "2"]) == 0
    assert pretrained_ids(folder) == ["CartPole-v1"]
    theirs, ours = SavedPolicy.load(folder / "CartPole-v1"), SavedPolicy.pretrained("CartPole-v1")
    np.testing.assert_array_equal(theirs.theta, ours.theta)
    np.testing.assert_array_equal(theirs.observation_moments.mean, ours.observation_moments.mean)
    capsys.readouterr()
    assert main(["pretrained", "--to", str(folder)]) == 0
    assert "pretrained/CartPole-v1" in capsys.readouterr().out
    assert read_card(folder / "CartPole-v1").episodes == 2


def test_a_card_is_checked(tmp_path):
    folder = tmp_path / "policy"
    shutil.copytree(FOLDER / "CartPole-v1", folder)
    text = (folder / "results.json").read_text()
    (folder / "results.json").write_text(text.replace('"steps": 1', '"steps": "x", "y": 1'))
    with pytest.raises(ValueError, match="not a card"):
        read_card(folder)
    (folder / "results.json").write_text(text.replace('"seed": 0', '"seed": "0"'))
    with pytest.raises(ValueError, match="seed is not valid"):
        read_card(folder)
    (folder / "results.json").unlink()
    (folder / "results.json").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeFileError):
        read_card(folder)
