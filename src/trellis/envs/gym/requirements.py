"""Compares what a package requires with what is installed, for errors about an environment."""

import importlib.metadata
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement


def conflicts(module: str) -> str:
    """Return a sentence about requirements of a package that are not met, or an empty text.

    Args:
        module: A module of the package, such as `metaworld.env`.
    """
    name = module.partition(":")[0].partition(".")[0]
    found = [
        text
        for package in importlib.metadata.packages_distributions().get(name, [])
        for text in _conflicts(package)
    ]
    return f" Perhaps because {'; '.join(found)}." if found else ""


def _conflicts(package: str) -> Iterator[str]:
    for line in importlib.metadata.requires(package) or []:
        try:
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            installed = importlib.metadata.version(wanted.name)
        except (InvalidRequirement, importlib.metadata.PackageNotFoundError):
            continue
        if not wanted.specifier.contains(installed, prereleases=True):
            rule = f"{package} requires {wanted.name}{wanted.specifier}"
            yield f"{rule}, and {installed} is installed"
