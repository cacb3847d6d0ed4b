"""The folder of a run, as the command line takes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from trellis.config import TrainConfig

Flag = tyro.conf.FlagCreatePairsOff
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Folder of a run.")]
Runs = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN [RUN ...]", help="Folders of runs."),
]


def config_of(run: Path) -> "TrainConfig":
    """The settings of a run whose environment has an id, so that it can be made again."""
    from trellis.agent import CALLABLE_PREFIX
    from trellis.runs.folder import read_config

    config = read_config(run)
    if config.env.startswith(CALLABLE_PREFIX):
        raise ValueError(
            f"{run} was trained on {config.env}, which the command line cannot make: load it from"
            " Python, with TRPO.load(path, env=…)"
        )
    return config
