"""The public names of Trellis, and those that the API reference documents."""

import ast
import importlib
import inspect
import itertools
import pkgutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PACKAGES = ("trellis", "trellis.envs", "trellis.policies", "trellis.theory")
"""Packages whose every public name is in the reference."""
INVENTORY_HEADER_LINES = 4


def public_names() -> dict[str, object]:
    """Return every public object of `PACKAGES` by its dotted name.

    The public names of a package are its `__all__`. A package without one exports the public
    classes and functions of its modules.
    """
    names: dict[str, object] = {}
    for package in map(importlib.import_module, PACKAGES):
        if hasattr(package, "__all__"):
            names |= {f"{package.__name__}.{n}": getattr(package, n) for n in package.__all__}
        else:
            names |= _names_of_modules(package)
    return names


def _names_of_modules(package: ModuleType) -> dict[str, object]:
    names = {}
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            defined_here = getattr(value, "__module__", None) == module.__name__
            if not name.startswith("_") and defined_here and callable(value):
                names[f"{module.__name__}.{name}"] = value
    return names


def docstring(name: str, value: object) -> str:
    """Return the docstring of a public object, or the string below it if it is a constant.

    Args:
        name: Dotted name.
        value: The object.
    """
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    package, _, constant = name.rpartition(".")
    module = importlib.import_module(package)
    for source in (module, *_submodules(module)):
        for first, second in _pairs(Path(source.__file__ or "")):
            if _assigns(first, constant) and isinstance(second, ast.Expr):
                text = second.value
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    return inspect.cleandoc(text.value)
    return ""


def _submodules(module: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{module.__name__}."):
        yield importlib.import_module(found.name)


def _pairs(path: Path) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yield each statement of a module with the one that follows it."""
    statements = ast.parse(path.read_text("utf-8")).body
    yield from itertools.pairwise(statements)


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def documented_in_inventory(site: Path) -> set[str]:
    """Return the names in the inventory of a built site."""
    _, *rest = (site / "objects.inv").read_bytes().split(b"\n", INVENTORY_HEADER_LINES)
    lines = zlib.decompress(rest[-1]).decode().splitlines()
    return {line.split(" ", 1)[0] for line in lines}
