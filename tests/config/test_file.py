"""The settings of a run as a file that anybody may have written."""

import dataclasses
import json
import warnings

import pytest

from trellis.config import PolicyConfig, TrainConfig, to_json
from trellis.config.file import (
    OldRunWarning,
    config_text,
    differences,
    has_checksum,
    load_config,
    read_run_config,
    settings_json,
)

CONFIG = TrainConfig("CartPole-v1", seed=3, policy=PolicyConfig(hidden=(8,)))


@pytest.fixture
def path(tmp_path):
    (tmp_path / "config.json").write_text(config_text(settings_json(CONFIG)))
    return tmp_path / "config.json"


def test_what_is_written_is_read(path):
    assert read_run_config(path.parent) == load_config(path) == CONFIG
    assert has_checksum(path.parent)


def test_an_edited_file_is_refused_as_a_run_and_used_as_a_template(path):
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(ValueError, match=r"damaged or was edited.*trellis train --config"):
        read_run_config(path.parent)
    with pytest.warns(UserWarning, match="was edited or damaged since a run wrote it"):
        assert load_config(path).seed == 4


def test_a_file_without_a_checksum_brings_one_notice(path):
    path.write_text(json.dumps(to_json(CONFIG)))
    with pytest.warns(OldRunWarning, match="earlier version"):
        assert read_run_config(path.parent) == CONFIG
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_run_config(path.parent) == CONFIG
    assert not has_checksum(path.parent)


def test_a_link_is_refused_in_a_run_and_followed_where_the_user_names_it(path, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        read_run_config(run)
    assert load_config(run / "config.json") == CONFIG


def test_settings_that_could_not_be_read_back_are_not_written():
    for changes in (
        {"threads": 10**6},
        {"env_options": {"x": 2**64}},
        {"env_options": {"x": float("inf")}},
        {"policy": PolicyConfig(hidden=(10**7,))},
        {"env": "\x1b"},
    ):
        with pytest.raises(ValueError, match=r"must be|range|not JSON"):
            settings_json(dataclasses.replace(CONFIG, **changes))


def test_differences_leave_out_what_may_change_on_resume():
    other = dataclasses.replace(CONFIG, total_steps=5, threads=2, seed=9)
    assert differences(settings_json(CONFIG), settings_json(other)) == [("seed", 3, 9)]
