"""Ask before the module of an environment that a run folder names is imported.

Consent is `--trust-env`, a yes on a terminal, or a module that the command line itself names
(`--import MODULE`, `trellis train MODULE:ID`). Only the latter searches the current folder.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from trellis.cli.errors import say

TrustEnv = Annotated[
    bool, tyro.conf.arg(help="Import the module that the run names for its environment.")
]
Import = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="import",
        metavar="MODULE",
        help="Modules to import first, for an environment of your own. The current folder is"
        " searched too.",
    ),
]


def import_modules(names: Sequence[str]) -> None:
    """Import modules that the command line names, also from the current folder."""
    if names:
        search_current_folder()
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"there is no module {error.name} to import for --import") from error


def search_current_folder() -> None:
    """Let Python find modules in the current folder, after those that are installed."""
    if "" not in sys.path:
        sys.path.append("")


def allow_env(
    env_id: str,
    options: Mapping[str, Any],
    source: Path,
    *,
    trust_env: bool = False,
    named: bool = False,
) -> None:
    """Raise `ConsentError` unless the environment may be made; ask if there is a terminal.

    Args:
        env_id: Id of the environment.
        options: Its options in a run folder or a file.
        source: The folder or file.
        trust_env: Whether the command line gives consent.
        named: Whether the command line names the environment, so that only `options` need consent.
    """
    from trellis.envs.consent import ConsentError, require_consent

    try:
        require_consent(env_id, options, source, trusted=trust_env, named=named)
    except ConsentError as error:
        if not _says_yes(error.reason):
            raise
        require_consent(env_id, options, source, trusted=True)


def _says_yes(reason: str) -> bool:
    """Return whether the person at the terminal agrees; without a terminal nobody does."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say(reason)
    print("Do you trust it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
