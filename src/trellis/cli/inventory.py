"""`trellis envs`, `trellis presets` and `trellis doctor`: what exists, and whether it works."""

from typing import Annotated

import tyro

from trellis.cli.errors import say


def environments(*, all_: Annotated[bool, tyro.conf.arg(name="all")] = False) -> int:
    """List the environments that can be trained here: fast batches first, then everything else.

    Args:
        all_: Also list environments whose package is not installed, with the install command.
    """
    from trellis.envs import list_environments

    listed = list_environments()
    shown = [entry for entry in listed if all_ or not entry.missing]
    width = max(len(entry.env_id) for entry in shown)
    for entry in shown:
        how = f"{entry.runs}; {entry.restorable}"
        print(f"{entry.env_id:<{width}}  {entry.missing or how}")
    if len(shown) < len(listed):
        say(f"{len(listed) - len(shown)} more need a package: trellis envs --all")
    return 0


def list_presets() -> int:
    """List the named settings that a run can start from."""
    from trellis.presets import PRESETS

    width = max(map(len, PRESETS))
    for name, preset in PRESETS.items():
        print(f"{name:<{width}}  {preset.about}")
    return 0


def doctor() -> int:
    """Report what is installed and whether it works; fail if something needed does not."""
    from trellis.cli import doctor as checks

    return checks.report()
