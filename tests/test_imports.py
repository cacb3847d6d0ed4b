"""The direction of dependencies, as the design has it: one way, and the edges stay at the edges."""

import ast
from pathlib import Path

import pytest

import trellis

ROOT = Path(trellis.__file__).parent
MAY_IMPORT = {
    "policies": set(),
    "sampling": {"policies"},
    "estimation": {"policies", "sampling"},
    "optimization": {"policies", "sampling", "estimation"},
    "envs": set(),
    "theory": set(),
}
EDGES = {"gymnasium", "mujoco", "ale_py", "ray", "matplotlib", "tensorboardX", "imageio"}
THEORY_ADAPTERS = {"as_batch.py", "as_gymnasium.py"}
"""Where finite MDPs become environments: the one edge of the theory."""


def imports(path: Path, *, top_level_only: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "trellis":
                names |= {f"trellis.{alias.name}" for alias in node.names}
    return names


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).glob("*.py"))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_one_way(package):
    for path in files(package):
        if path.name in THEORY_ADAPTERS:
            continue
        for name in imports(path, top_level_only=False):
            parts = name.split(".")
            if parts[0] != "trellis" or len(parts) < 2:
                continue
            allowed = MAY_IMPORT[package] | {package, "rng", "blas", "config"}
            assert parts[1] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("package", ["policies", "sampling", "estimation", "optimization"])
def test_the_learning_side_knows_no_simulator(package):
    for path in files(package):
        tops = {name.split(".")[0] for name in imports(path, top_level_only=False)}
        assert not tops & EDGES, f"{path.name} imports {tops & EDGES}"


def test_theory_imports_array_code_alone():
    for path in files("theory"):
        if path.name in THEORY_ADAPTERS:
            continue
        tops = {name.split(".")[0] for name in imports(path, top_level_only=True)}
        third_party = tops & (EDGES | {"jax", "optax", "safetensors"})
        assert not third_party, f"{path.name} imports {third_party}"


@pytest.mark.parametrize("name", ["conjugate_gradient", "line_search"])
def test_the_solvers_know_nothing_of_policies(name):
    names = imports(ROOT / "optimization" / f"{name}.py", top_level_only=False)
    ours = {n for n in names if n.startswith("trellis")}
    assert ours <= {"trellis.optimization.conjugate_gradient"}
