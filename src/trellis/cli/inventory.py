"""`trellis envs`, `trellis presets` and `trellis doctor`: what exists, and whether it works."""

import shutil
import sys
import textwrap
from typing import Annotated

import tyro

from trellis.cli.errors import say

MIN_COLUMNS = 40
"""Smallest width of a description in a narrow terminal."""


def environments(*, all_: Annotated[bool, tyro.conf.arg(name="all")] = False) -> int:
    """List the environments that can be trained.

    Environments with a fast batched simulator come first.

    Args:
        all_: Also list environments whose package is missing, with the install command.
    """
    from trellis.envs import list_environments

    listed = list_environments()
    shown = [entry for entry in listed if all_ or not entry.missing]
    width = max(len(entry.env_id) for entry in shown)
    say(f"{'ENVIRONMENT':<{width}}  {'SIMULATOR':<17}  SNAPSHOTS (vine needs them)")
    for entry in shown:
        how = f"{entry.runs:<17}  {entry.restorable}"
        print(f"{entry.env_id:<{width}}  {f'needs: {entry.missing}' if entry.missing else how}")
    if len(shown) < len(listed):
        count = len(listed) - len(shown)
        say(f"{count} more environments need a package. List them with: trellis envs --all")
    return 0


def list_presets() -> int:
    """List the presets: named settings that a run can start from.

    Use one with `trellis train ENV --preset NAME`.
    """
    from trellis.presets import PRESETS

    width = max(map(len, PRESETS)) + 2
    # In a file or a pipe, a preset stays on one line.
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for name, preset in PRESETS.items():
        first, *more = textwrap.wrap(preset.about, max(columns - width, MIN_COLUMNS))
        print(f"{name:<{width}}{first}")
        print(*(" " * width + line for line in more), sep="\n", end="\n" if more else "")
    return 0


def doctor() -> int:
    """Check what is installed and whether it works.

    Exits with 1 if a required package is missing or an installed one is broken.
    """
    from trellis.cli import doctor as checks

    return checks.report()
