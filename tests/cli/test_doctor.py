"""The doctor: what is broken fails, what is merely not installed does not."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from trellis.cli import doctor
from trellis.cli.main import main


def test_a_healthy_machine(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "PHYSICS_SECONDS", 0.05)
    # Where there is no OpenGL, training works all the same.
    monkeypatch.setattr(doctor, "RENDER", "raise SystemExit('no display')")
    assert main(["doctor"]) == 0
    lines = {line[:22].strip(): line[23:] for line in capsys.readouterr().out.splitlines()}
    for name in (*doctor.NEEDED, "compiling with JAX", "device in use"):
        assert lines[name].startswith("ok")
    if "batched physics" in lines:
        assert "steps per second of Hopper-v5" in lines["batched physics"]
        assert lines["rendering off screen"].startswith("missing")
        assert "no display" in lines["rendering off screen"]
        assert "apt install libegl1" in lines["rendering off screen"]


def test_the_lists_are_those_of_the_project():
    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(doctor.NEEDED) == {re.split(r"[<>=\[]", line)[0] for line in about["dependencies"]}
    found = packages_distributions()
    for extra, modules in doctor.EXTRAS.items():
        wanted = {re.split(r"[<>=\[]", n)[0] for n in about["optional-dependencies"][extra]}
        assert {found[module][0].lower().replace("_", "-") for module in modules} == {
            name.lower() for name in wanted
        }
    for extra, modules in doctor.SUITES.items():
        wanted = {re.split(r"[<>=\[]", name)[0] for name in about["optional-dependencies"][extra]}
        names = {"mujoco_playground": "playground", "mujoco.mjx": "mujoco-mjx"}
        assert {names.get(module, module) for module in modules} == wanted


def test_a_suite_is_looked_up_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "slow_suite.py").write_text("raise ImportError('never run')")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor.package("slow_suite", "pip install it", needed=False, load=False).state == "ok"
    missing = doctor.package("no_parent.suite", "pip install it", needed=False, load=False)
    assert (missing.state, "pip install it" in missing.detail) == ("missing", True)


def test_a_package_that_cannot_be_imported_is_broken(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("raise ImportError('libGL.so.1 is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    check = doctor.package("half_installed", "pip install it", needed=False)
    assert check.state == "broken"
    assert "libGL.so.1 is missing" in check.detail


@pytest.mark.parametrize(("needed", "code"), [(True, 1), (False, 0)])
def test_a_package_that_is_not_there(needed, code, capsys, monkeypatch):
    check = doctor.package("no_such_package", "pip install it", needed=needed)
    monkeypatch.setattr(doctor, "checks", lambda: [check])
    assert main(["doctor"]) == code
    assert "pip install it" in capsys.readouterr().out


def test_what_fails_when_tried_is_broken(capsys, monkeypatch):
    def fail():
        raise OSError("illegal instruction")

    monkeypatch.setattr(doctor, "checks", lambda: [doctor.attempt("physics", fail)])
    assert main(["doctor"]) == 1
    assert "broken   OSError: illegal instruction" in capsys.readouterr().out
