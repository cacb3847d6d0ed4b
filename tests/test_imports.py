"""Tests that imports go one way and that optional packages load when first used.

The order of our own packages is in pyproject.toml, for import-linter. Here are the packages of
others, and what is too fine for its contracts.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trellis

ROOT = Path(trellis.__file__).parent
HOMES = {
    "mujoco": "envs/mujoco",
    "ale_py": "envs/atari",
    "numba": ("envs/atari", "policies/kernels"),
    "ray": "cluster",
    "matplotlib": None,
    "imageio": None,
    "tensorboardX": None,
    "onnx": None,
    "onnxruntime": None,
}
"""Heavy packages, and the folder or folders that may import them at the top of a module."""
EDGES = {"gymnasium", *HOMES} - {"numba"}
LEAVES = {"arrays", "blas", "moments", "rng"}
"""Leaf modules that any package may import."""
THEORY_ADAPTERS = {"as_batch.py", "as_gymnasium.py"}
"""Modules that turn finite MDPs into environments."""


LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"


def test_packages_import_one_way():
    done = run(LINT, cwd=ROOT.parents[1], path=ROOT.parent)
    assert done.returncode == 0, done.stdout


def test_an_import_against_the_order_is_found(tmp_path):
    """The linter finds a lazy import too."""
    shutil.copytree(ROOT, tmp_path / "trellis")
    with (tmp_path / "trellis" / "training" / "trainer.py").open("a") as file:
        file.write("\n\ndef later():\n    import trellis.cluster\n")
    done = run(LINT, cwd=ROOT.parents[1], path=tmp_path)
    assert done.returncode == 1
    assert "trellis.training is not allowed to import trellis.cluster" in done.stdout


def imported(nodes: list[ast.stmt]) -> set[str]:
    """Return the full names that these statements import: modules, and names in modules."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def all_imports(path: Path) -> set[str]:
    """Return the imports anywhere in a module, including those in functions."""
    return imported([n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.stmt)])


def top_imports(path: Path) -> set[str]:
    """Return the imports that run when a module is imported, not those in functions."""
    pending, found = list(ast.parse(path.read_text()).body), []
    while pending:
        node = pending.pop()
        found.append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return imported(found)


def packages(names: set[str]) -> set[str]:
    """Return the outermost package of each module."""
    return {name.split(".")[0] for name in names}


def homes(package: str) -> tuple[str, ...]:
    """Return the folders that may import a heavy package at the top of a module."""
    home = HOMES[package]
    return home if isinstance(home, tuple) else (home,) if home else ()


def modules(folder: str = "") -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("package", ["policies", "sampling", "estimation", "optimization"])
def test_learning_packages_import_no_simulator(package):
    """They may import Gymnasium for its spaces only."""
    for path in modules(package):
        names = {n for n in all_imports(path) if not f"{n}.".startswith("gymnasium.spaces.")}
        edges = packages(names) & EDGES
        assert not edges, f"{path} imports {edges}"


def test_theory_imports_only_array_code():
    for path in modules("theory"):
        ours = {name.split(".")[1] for name in all_imports(path) if name.startswith("trellis.")}
        if path.name in THEORY_ADAPTERS:
            environments = {name for name in all_imports(path) if name.startswith("trellis.envs")}
            assert all(name.startswith("trellis.envs.batch") for name in environments), path
            ours.discard("envs")
        else:
            third_party = packages(top_imports(path)) & (EDGES | {"jax", "optax", "safetensors"})
            assert not third_party, f"{path} imports {third_party}"
        assert ours <= {"theory", *LEAVES}, f"{path} imports {ours}"


@pytest.mark.parametrize("name", ["conjugate_gradient", "line_search"])
def test_the_solvers_do_not_import_policies(name):
    names = all_imports(ROOT / "optimization" / f"{name}.py")
    ours = {tuple(name.split(".")[1:3]) for name in names if name.startswith("trellis.")}
    others = {home for home in ours if home[0] not in LEAVES}
    assert others <= {("optimization", "conjugate_gradient")}


@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_is_imported_by_functions_or_in_its_own_folder(package):
    for path in modules():
        if not any(path.is_relative_to(ROOT / home) for home in homes(package)):
            assert package not in packages(top_imports(path)), f"{path} imports {package}"


def test_importing_a_module_loads_no_heavy_package():
    """The test includes indirect imports by other modules and third-party packages."""
    special = [home for package in HOMES for home in homes(package)]
    names = [
        ".".join(["trellis", *path.relative_to(ROOT).with_suffix("").parts])
        for path in modules()
        if path.stem != "__main__" and not any(path.is_relative_to(ROOT / home) for home in special)
    ]
    script = (
        "import importlib, sys\n"
        f"for name in {names}: importlib.import_module(name)\n"
        f"print(*sorted({set(HOMES)} & set(sys.modules)))"
    )
    done = run(script, cwd=ROOT, path=ROOT.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def run(script: str, *, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that imports `trellis` from the folder `path`."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
