"""The folder of a run: its configuration, who may use it, and the lock of who does.

config.json      all that the run depends on
metrics.jsonl    one line an iteration
tensorboard/     the same, if tensorboardX is installed
checkpoints/     the last few whole states
"""

import contextlib
import importlib.util
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trellis.config import TrainConfig, from_json, to_json
from trellis.runs.checkpoint import sync_folder, write_and_sync

CONFIG = "config.json"

MAY_CHANGE = frozenset(
    [
        "total_steps",
        "max_iterations",
        "eval_every",
        "eval_episodes",
        "eval_drawn",
        "checkpoint_every",
        "keep_checkpoints",
        "threads",
    ]
)
"""Settings that a resumed run may have otherwise: none of them changes what an iteration does."""

LOCK_SECONDS = 2.0
"""How long to wait for another process to let go of a run: one that was killed takes a moment."""


class RunFolderError(RuntimeError):
    """A folder cannot be used as asked; the message says why and what to do."""


def resume_command(folder: Path) -> str:
    """The line that goes on with a run."""
    return shlex.join(["trellis", "resume", str(folder)])


def read_config(folder: Path | str) -> TrainConfig:
    """The configuration of the run in `folder`."""
    require_run(Path(folder))
    path = Path(folder) / CONFIG
    try:
        config = from_json(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
    _require_module_elsewhere(config.env, Path(folder))
    return config


def _require_module_elsewhere(env_id: str, folder: Path) -> None:
    """Refuses `module:Id` where the module lies in the folder itself: making the environment would
    run code that came with the run."""
    module, colon, _ = env_id.rpartition(":")
    package = module.partition(".")[0]
    if not colon or not package.isidentifier() or package in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(package)  # of the outermost, which imports nothing
    except (ImportError, ValueError):
        return
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin]
    inside = folder.resolve()
    for place in places:
        if place and (Path(place).resolve() == inside or inside in Path(place).resolve().parents):
            raise RunFolderError(
                f"{folder / CONFIG} names the environment {env_id!r}, whose module {package} lies"
                " in the run itself. Loading a run runs no code from it: put the module where"
                " Python finds it otherwise if you trust it"
            )


def require_run(folder: Path) -> None:
    """Raises unless there is a run in this folder."""
    if not (folder / CONFIG).is_file():
        raise RunFolderError(f"{folder} is not a run: there is no {CONFIG} in it")


def require_empty(folder: Path) -> None:
    """Raises unless a new run can begin in this folder."""
    if folder.is_dir() and all(path.name == f"{CONFIG}.tmp" for path in folder.iterdir()):
        return
    if (folder / CONFIG).exists():
        raise RunFolderError(
            f"{folder} holds a run already; choose another --out, or go on with it:"
            f" {resume_command(folder)}"
        )
    if folder.exists():
        raise RunFolderError(f"{folder} exists and is not empty; choose another --out")


def require_same_run(folder: Path, config: TrainConfig) -> None:
    """Raises unless this configuration can go on with the run in `folder`."""
    old, new = _flat(as_json(read_config(folder))), _flat(as_json(config))
    names = sorted((old.keys() | new.keys()) - MAY_CHANGE)
    refused = [name for name in names if old.get(name) != new.get(name)]
    if refused:
        words = "; ".join(f"{n} is {old.get(n)!r} there, {new.get(n)!r} here" for n in refused)
        raise RunFolderError(f"{folder} is a run with other settings: {words}")


def as_json(config: TrainConfig) -> dict[str, Any]:
    """The settings as they are written; raises where that cannot be."""
    try:
        return json.loads(json.dumps(to_json(config), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RunFolderError(
            f"the settings cannot be written as JSON: {error}. Options of an environment that are"
            " not plain values belong into a callable that makes it"
        ) from error


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def write_config(folder: Path, config: TrainConfig) -> None:
    """Writes or replaces the configuration; makes the folder if need be."""
    text = json.dumps(as_json(config), indent=2) + "\n"
    make_folder(folder)
    try:
        write_whole(folder / CONFIG, text)
    except OSError as error:
        raise _unusable(folder / CONFIG, error) from error


def make_folder(folder: Path) -> None:
    """If there is none; raises in words where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"cannot write {path}: {error.strerror or error}; choose another --out")


def write_whole(path: Path, text: str) -> None:
    """A file with this text, whole or as it was before."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write_and_sync(temporary, text.encode())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def locked(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Two processes must not train in one folder; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Not on this platform: then it is left to the person's care.
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise RunFolderError(
                        f"{folder} is in the hands of another process; wait for it or stop it"
                    ) from error
                time.sleep(0.05)
            except OSError:  # A file system that cannot lock.
                break
        yield
    finally:
        os.close(descriptor)
