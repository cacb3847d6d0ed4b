"""Tests where a module would come from, without importing anything."""

import sys

import pytest

from trellis.envs.consent import ConsentError, file_of_module, require_consent


def test_a_module_in_packages_without_an_init_file(tmp_path, monkeypatch):
    folder = tmp_path / "outer_space" / "inner_space"
    folder.mkdir(parents=True)
    (folder / "tasks.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    name = "outer_space.inner_space.tasks"
    assert file_of_module(name) == str(folder / "tasks.py")
    assert file_of_module("outer_space.inner_space") == str(folder)
    assert file_of_module("outer_space.missing.tasks") is None
    with pytest.raises(ConsentError, match=r"inner_space/tasks\.py"):
        require_consent(f"{name}:Task-v0", {}, "run")
    assert not [module for module in sys.modules if module.startswith("outer_space")]
