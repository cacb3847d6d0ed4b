"""Which code made a result: the commit of the checkout that this package is imported from.

It is read from git's files. Starting `git` would fork a process that has JAX's threads in it.
"""

import functools
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
UNKNOWN = "unknown"
"""Outside of a checkout."""


@functools.cache
def commit(checkout: Path = CHECKOUT) -> str:
    """Its short hash; what was changed since it was made does not show."""
    try:
        if not (checkout / "src" / "trellis").is_dir():
            return UNKNOWN
        own = checkout / ".git"
        if own.is_file():  # of a further work tree: a line that says where
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
