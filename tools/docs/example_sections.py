"""Let the API reference show `Example:` in docstrings as highlighted code.

Griffe knows the section as `Examples:`; under another name its text would be read as Markdown.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """Renames the section in every docstring, before it is parsed."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rename the section in the docstring of a package, for which `on_object` is not called."""
        _rename(pkg)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of anything in the package."""
        _rename(obj)


def _rename(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        obj.docstring.value = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
