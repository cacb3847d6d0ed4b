"""`--track`: experiment trackers that get the metrics of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from trellis.runs.callback import Callback

TrackerName = Literal["wandb", "mlflow", "tensorboard"]
"""Names of the trackers in `trellis.runs.trackers`."""
Trackers = Annotated[
    tuple[TrackerName, ...],
    tyro.conf.arg(name="track", help="Experiment trackers that also get the metrics."),
]


def callbacks(names: Sequence[TrackerName]) -> "list[Callback]":
    """Return the callbacks for trackers; an ImportError says how to install a missing one."""
    if not names:
        return []
    from trellis.callbacks import Track

    return [Track(name) for name in dict.fromkeys(names)]
