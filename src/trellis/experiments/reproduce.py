"""`trellis reproduce WHAT`: the figures and tables of the paper, one command each."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from trellis.messages import UsageError, say


def reproduce(
    what: Annotated[Literal["theory", "training"], tyro.conf.Positional],
    *,
    out: Path | None = None,
    seeds: int | None = None,
) -> int:
    """Reproduces a figure or table of the paper: its data, its drawing, the command that made it.

    Args:
        what: theory: Algorithm 1, conservative policy iteration and trust regions on finite MDPs.
            training: final returns and curves of the modern presets; runs that are finished are
            not run again, interrupted ones resume.
        out: Folder for the results; results/WHAT by default.
        seeds: How many random problems (theory, 10) or runs of each task (training, 5).
    """
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {seeds}")
    folder = out or Path("results") / what
    say(f"Reproducing {what} in {folder}")
    if what == "theory":
        from trellis.experiments import theory

        theory.run(folder, seeds or 10)
    else:
        from trellis.experiments import training

        training.run(folder, seeds or 5, say)
    print(folder)
    return 0
