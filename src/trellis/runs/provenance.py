"""The commit that made a result: that of the checkout from which this package is imported.

It is read from git's files. Starting `git` would fork a process that runs JAX's threads.
"""

import functools
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
UNKNOWN = "unknown"
"""Commit of a package that is not in a checkout."""


@functools.cache
def commit(checkout: Path = CHECKOUT) -> str:
    """Return the short hash of the current commit; uncommitted changes do not show."""
    try:
        if not (checkout / "src" / "trellis").is_dir():
            return UNKNOWN
        own = checkout / ".git"
        if own.is_file():  # A further work tree has a file with the path of its own folder.
            own = checkout / own.read_text().removeprefix("gitdir:").strip()
        common = own / "commondir"
        shared = own / common.read_text().strip() if common.is_file() else own
        head = (own / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head[:7]
        return _hash_of(head.removeprefix("ref:").strip(), own, shared)[:7]
    except OSError:
        return UNKNOWN


def _hash_of(ref: str, own: Path, shared: Path) -> str:
    for folder in (own, shared):
        if (folder / ref).is_file():
            return (folder / ref).read_text().strip()
    for line in (shared / "packed-refs").read_text().splitlines():
        hash_, _, name = line.partition(" ")
        if name == ref:
            return hash_
    return UNKNOWN
