"""Finds the trained policies that come with the package.

Each is a folder that `SavedPolicy.load` opens, in `trellis/pretrained/ID`. `trellis pretrained`
lists them with their scores, and `trellis pretrained RUN` adds one.
"""

import difflib
from pathlib import Path, PurePath

from trellis.config import CONFIG_FILE

FOLDER = Path(__file__).parents[1] / "pretrained"
"""Folder of the policies."""
PREFIX = "pretrained"
"""First part of a path that names one of the policies: pretrained/Hopper-v5."""


def pretrained_ids(folder: Path = FOLDER) -> list[str]:
    """Return the ids of the environments that have a trained policy."""
    found = folder.rglob(CONFIG_FILE)
    return sorted(path.parent.relative_to(folder).as_posix() for path in found)


def pretrained_folder(env_id: str, folder: Path = FOLDER) -> Path:
    """Return the folder of the trained policy for an environment.

    Raises:
        ValueError: There is no such policy; the message names similar ones.
    """
    ids = pretrained_ids(folder)
    if env_id not in ids:
        near = difflib.get_close_matches(env_id, ids, n=3) or ids
        raise ValueError(
            f"there is no pretrained policy for {env_id!r}; the nearest: {', '.join(near)}."
            " `trellis pretrained` lists all"
        )
    return folder / env_id


def find_run(path: str | Path) -> Path:
    """Return the folder that a path names: itself, or a pretrained policy for pretrained/ID.

    A folder on the disk comes first.
    """
    path = Path(path)
    first, *others = PurePath(path).parts or ("",)
    if first != PREFIX or not others or path.exists():
        return path
    return pretrained_folder("/".join(others))
