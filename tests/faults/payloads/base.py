"""A payload: a function that changes a copy of a good run, and who must refuse the result."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forge import newest

NOBODY: frozenset[str] = frozenset()
TYPED = frozenset(["train --config", "tune --config"])
"""Commands whose user types the path of the file, which may be a link, and may edit the file."""


@dataclass(frozen=True)
class Place:
    """Where a payload acts."""

    run: Path
    """A copy of a good run."""
    outside: Path
    """A folder beside it, which must not change."""
    trap: Path
    """A file that is created if code from the payload runs."""

    @property
    def victim(self) -> Path:
        """A file outside of the run."""
        return self.outside / "victim"

    @property
    def saved(self) -> Path:
        """The newest checkpoint."""
        return newest(self.run)


@dataclass(frozen=True)
class Payload:
    """One malicious run folder."""

    name: str
    kind: str
    """Class of payloads that it belongs to."""
    apply: Callable[[Place], Any]
    refused: frozenset[str] = NOBODY
    """Commands that end with one line and exit code 2; the others succeed."""
    warned: frozenset[str] = NOBODY
    """Commands that succeed with a warning, such as one about an earlier checkpoint."""
    large: bool = False
    """Whether it tries to fill the memory."""


class RunsCode:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, trap: Path):
        self.trap = trap

    def __reduce__(self):
        return os.mkdir, (str(self.trap),)
