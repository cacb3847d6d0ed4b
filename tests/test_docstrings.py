"""Tests of docstrings: they are full phrases, and the examples in them are true."""

import ast
import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import trellis

ROOT = Path(trellis.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
PUBLIC_PACKAGES = ("trellis", "trellis.envs", "trellis.policies", "trellis.theory")
BAD_FIRST_WORDS = {"Of", "Likewise", "As", "And", "Taken"}
FEWEST_WORDS = 3
TRAINS = ("TRPO(", "Trainer(")
"""Code in an example that takes seconds."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


WITH_EXAMPLES = [module_name(path) for path in MODULES if ">>> " in path.read_text()]


def docstrings(path: Path) -> list[tuple[int, str]]:
    """Return line and text of every string that is a statement: docstrings, also of attributes."""
    return [
        (node.lineno, inspect.cleandoc(node.value.value))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def is_full_phrase(text: str) -> bool:
    words = text.split()
    return len(words) >= FEWEST_WORDS and words[0].strip(".,:;") not in BAD_FIRST_WORDS


def test_every_docstring_is_a_full_phrase():
    bad = [
        f"{path.relative_to(ROOT.parent)}:{line}: {text}"
        for path in MODULES
        for line, text in docstrings(path)
        if not is_full_phrase(text)
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("text", ["Of both together.", "Likewise.", "As it was before.", ""])
def test_a_fragment_is_found(text):
    assert not is_full_phrase(text)


@pytest.mark.parametrize("package", PUBLIC_PACKAGES)
def test_public_names_have_a_docstring_of_their_own(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            text = vars(value)["__doc__"] if inspect.isclass(value) else value.__doc__
            assert text, name
            # A NamedTuple or dataclass without one gets its signature as docstring.
            assert not text.startswith(f"{name}("), name


def run_examples(name: str, *, that_train: bool) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    for found in doctest.DocTestFinder().find(importlib.import_module(name)):
        trains = any(word in example.source for example in found.examples for word in TRAINS)
        if trains is that_train:
            runner.run(found)
    assert runner.failures == 0


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name):
    run_examples(name, that_train=False)


@pytest.mark.slow
def test_examples_that_train_are_true():
    for name in WITH_EXAMPLES:
        run_examples(name, that_train=True)
