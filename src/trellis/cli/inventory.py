"""`trellis envs`, `trellis presets` and `trellis doctor`: what there is, and whether it works."""

from typing import Annotated

import tyro

from trellis.cli.folder import Flag
from trellis.cli.messages import say


def environments(*, all_: Annotated[Flag[bool], tyro.conf.arg(name="all")] = False) -> int:
    """Lists what can be trained here: fast batches first, then everything else.

    Args:
        all_: Also what needs a package that is not installed, with the line that installs it.
    """
    from trellis.envs import list_environments

    listed = list_environments()
    rows = [row for row in listed if all_ or not row.missing]
    width = max(len(row.env_id) for row in rows)
    for row in rows:
        how = f"{row.runs}; {row.restorable}"
        print(f"{row.env_id:<{width}}  {row.missing or how}")
    if len(rows) < len(listed):
        say(f"{len(listed) - len(rows)} more need a package: trellis envs --all")
    return 0


def list_presets() -> int:
    """Lists the named settings that a run can start from."""
    from trellis.presets import PRESETS

    width = max(map(len, PRESETS))
    for name, preset in PRESETS.items():
        print(f"{name:<{width}}  {preset.about}")
    return 0


def doctor() -> int:
    """Tells what is installed here and whether it works; fails if something needed does not."""
    from trellis.cli import doctor as checks

    return checks.report()
