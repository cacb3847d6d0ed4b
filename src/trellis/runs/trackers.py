"""Experiment trackers: Weights & Biases, MLflow and TensorBoard.

A tracker gets the settings when training starts and the numbers of each iteration. wandb and MLflow
work without a network: `WANDB_MODE=offline` writes to the run folder, and MLflow writes to the
store at `MLFLOW_TRACKING_URI`, by default the SQLite file `mlflow.db` in the current folder.

A run that is resumed continues its record: `tracking.json` in the run folder holds the ids.
"""

import importlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trellis import strict_json
from trellis.config import TrainConfig
from trellis.config.file import flatten, settings_json
from trellis.runs.events import Events
from trellis.runs.tags import scalars
from trellis.safe_files import is_there, read_file, write_file

PROJECT = "trellis"
"""Project of wandb, and experiment of MLflow, unless their own variables name one."""
IDS = "tracking.json"
"""File of a run folder that holds the id of its record in each tracker."""
IDS_BYTES = 1 << 14
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Tracker(Protocol):
    """Records the numbers of a training run somewhere."""

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of one iteration."""

    def close(self) -> None:
        """Finish the record."""


class WandbTracker:
    """Records a run in Weights & Biases.

    Args:
        config: Settings of the run.
        folder: Run folder; None for the current folder.
        name: Name of the record.
    """

    def __init__(self, config: TrainConfig, folder: Path | None, name: str):
        wandb = require_package("wandb")
        known = read_id(folder, "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            id=known,
            resume="allow" if known else None,
            config=flatten(settings_json(config)),
            dir=None if folder is None else str(folder),
        )
        write_id(folder, "wandb", str(self._run.id))

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of one iteration."""
        self._run.log(scalars(metrics), step=int(metrics["steps"]))

    def close(self) -> None:
        """Finish the record."""
        self._run.finish()


class MlflowTracker:
    """Records a run in MLflow.

    Args:
        config: Settings of the run.
        folder: Run folder, whose id is continued; None for a new record.
        name: Name of the record.
    """

    def __init__(self, config: TrainConfig, folder: Path | None, name: str):
        mlflow = require_package("mlflow")
        self._metric = mlflow.entities.Metric
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{Path('mlflow.db').absolute()}")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        known = read_id(folder, "mlflow")
        self._id = known or self._new(mlflow, config, name)
        if known:
            self._client.update_run(known, status="RUNNING")
        write_id(folder, "mlflow", self._id)

    def _new(self, mlflow: Any, config: TrainConfig, name: str) -> str:
        """Create a record with the settings and return its id."""
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self._client.create_experiment(project)
        new = self._client.create_run(experiment, run_name=name).info.run_id
        settings = flatten(settings_json(config)).items()
        params = [mlflow.entities.Param(key, str(value)) for key, value in settings]
        self._client.log_batch(new, params=params)
        return str(new)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of one iteration."""
        now, step = int(time.time() * 1000), int(metrics["steps"])
        values = [self._metric(k, v, now, step) for k, v in scalars(metrics).items()]
        self._client.log_batch(self._id, metrics=values)

    def close(self) -> None:
        """Finish the record."""
        self._client.set_terminated(self._id)


class TensorBoardTracker:
    """Writes TensorBoard events. A run folder has them in any case, from its log.

    Args:
        config: Settings of the run.
        folder: Run folder; None for the folder `tensorboard` in `out`.
        name: Name of the record, a folder below `out`.
        out: Folder for the events of training without a run folder.
    """

    def __init__(
        self, config: TrainConfig, folder: Path | None, name: str, out: str | Path = "runs"
    ):
        require_package("tensorboardX", extra="tensorboard")
        self._events: Events | None = None
        if folder is None:
            target = Path(out) / name
            target.mkdir(parents=True, exist_ok=True)
            self._events = Events(target, None)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Write the numbers of one iteration."""
        if self._events is not None:
            self._events.write(metrics)

    def close(self) -> None:
        """Close the event file."""
        if self._events is not None:
            self._events.close()


TRACKERS: Mapping[str, Callable[..., Tracker]] = {
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "tensorboard": TensorBoardTracker,
}
"""Trackers by the names of `--track`."""
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboardX"}
"""Package that each tracker needs."""


def require_tracker(name: str) -> None:
    """Raise unless there is such a tracker and its package is installed."""
    if name not in TRACKERS:
        raise ValueError(f"there is no tracker {name!r}; there are {', '.join(TRACKERS)}")
    require_package(PACKAGES[name], extra=name)


def require_package(module: str, extra: str | None = None) -> Any:
    """Import the package of a tracker; an ImportError says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is not installed or does not work ({error}); install it with: pip install"
            f" 'trellis-rl[{extra or module}]'"
        ) from error


def read_id(folder: Path | None, tracker: str) -> str | None:
    """Return the id of a run's record in a tracker; None for a new record."""
    if folder is None or not is_there(folder, IDS):
        return None
    try:
        values = strict_json.parse(read_file(folder, IDS, limit=IDS_BYTES))
    except ValueError as error:
        raise ValueError(f"{folder / IDS} cannot be read: {error}; delete it") from error
    found = values.get(tracker) if isinstance(values, dict) else None
    return found if isinstance(found, str) and _ID.fullmatch(found) else None


def write_id(folder: Path | None, tracker: str, record: str) -> None:
    """Keep the id of a run's record, so that a resumed run continues it."""
    if folder is None:
        return
    ids = {name: read_id(folder, name) for name in TRACKERS} | {tracker: record}
    text = json.dumps({name: value for name, value in ids.items() if value}, indent=2)
    write_file(folder, IDS, text.encode() + b"\n")
