"""What a run folder names is not imported before somebody agrees."""

import sys

import gymnasium
import pytest

from trellis.envs import consent
from trellis.envs.consent import ConsentError, file_of_module, require_consent


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A module and a package on the import path that nobody may import."""
    (tmp_path / "trap_package").mkdir()
    for name in ("trap_module.py", "trap_package/__init__.py", "trap_package/inner.py"):
        (tmp_path / name).write_text("raise AssertionError('imported')\n")
    (tmp_path / "trap_space" / "deep").mkdir(parents=True)
    (tmp_path / "trap_space" / "deep" / "inner.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(consent, "_given", set())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("trap_module", "trap_module.py"),
        ("trap_package", "trap_package/__init__.py"),
        ("trap_package.inner", "trap_package/inner.py"),
        ("trap_space.deep.inner", "trap_space/deep/inner.py"),
        ("trap_space.deep", "trap_space/deep"),
        ("trap_package.nothing", None),
        ("trap_module.inner", None),
        ("trap_nothing", None),
    ],
)
def test_the_file_of_a_module_is_found_without_importing_anything(modules, name, file):
    assert file_of_module(name) == (str(modules / file) if file else None)
    assert not [name for name in sys.modules if name.startswith("trap_")]


@pytest.mark.parametrize("env_id", ["trap_module:X-v0", "trap_package.inner:CartPole-v1"])
def test_a_module_needs_consent(modules, env_id, monkeypatch):
    module = env_id.partition(":")[0]
    with pytest.raises(ConsentError, match=rf"runs/x names .*{module} \(from {modules}/"):
        require_consent(env_id, {}, "runs/x")
    monkeypatch.setitem(sys.modules, module, object())
    require_consent(env_id, {}, "runs/x")
    monkeypatch.delitem(sys.modules, module)
    require_consent(env_id, {}, "runs/x", trusted=True)
    require_consent(env_id, {}, "runs/x")  # It was given.
    with pytest.raises(ConsentError):
        require_consent(env_id, {"other": 1}, "runs/x")


def test_environments_of_gymnasium_and_trellis_need_none(modules):
    for env_id in (
        "CartPole-v1",
        "Hopper-v5",
        "ALE/Pong-v5",
        "trellis/PaperHopper-v0",
        "trellis.envs:trellis/PaperHopper-v0",
        "gymnasium:CartPole-v1",
        "ale_py:ALE/Pong-v5",
        "Unknown-v0",
    ):
        require_consent(env_id, {"max_episode_steps": 5}, "runs/x")


def test_a_registered_environment_of_others_needs_consent_until_it_is_imported(modules):
    gymnasium.register("Trap-v0", "trap_module:Env")
    try:
        for env_id in ("Trap-v0", "gymnasium:Trap-v0"):
            with pytest.raises(ConsentError, match="trap_module"):
                require_consent(env_id, {}, "runs/x")
    finally:
        gymnasium.registry.pop("Trap-v0")


@pytest.mark.parametrize("env_id", [":X-v0", "a b:X-v0", ".a:X-v0", "a..b:X-v0", "a:b:X-v0"])
def test_what_is_not_a_module_is_refused_with_consent_too(env_id):
    with pytest.raises(ValueError, match="not a module's name"):
        require_consent(env_id, {}, "runs/x", trusted=True)


def test_options_that_name_files_need_consent(modules):
    for value in ("/x.xml", "../x", "~/x", ".x", "a\\b", ["a", {"b": "c/d"}]):
        with pytest.raises(ConsentError, match="name files"):
            require_consent("Hopper-v5", {"xml_file": value}, "runs/x")
        with pytest.raises(ConsentError, match="name files"):
            require_consent("Hopper-v5", {"xml_file": value}, "runs/x", named=True)
    require_consent("Hopper-v5", {"xml_file": "hopper.xml", "map": ["SF", "FG"]}, "runs/x")


def test_expensive_options_need_consent():
    for options in ({"workers": 33}, {"desc": ["F" * 1000] * 17}):
        with pytest.raises(ConsentError, match="much time or memory"):
            require_consent("FrozenLake-v1", options, "runs/x")
        require_consent("FrozenLake-v1", options, "runs/x", trusted=True)
    require_consent("FrozenLake-v1", {"workers": 32, "desc": ["F" * 100] * 100}, "runs/x")


def test_a_module_of_the_current_folder_is_pointed_out(modules, tmp_path_factory, monkeypatch):
    here = tmp_path_factory.mktemp("here")
    (here / "trap_here.py").write_text("raise AssertionError\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    with pytest.raises(ConsentError, match="in the current folder") as caught:
        require_consent("trap_here:X-v0", {}, "runs/x")
    assert caught.value.module_here == "trap_here"
    with pytest.raises(ConsentError, match="not installed"):
        require_consent("trap_nowhere:X-v0", {}, "runs/x")
