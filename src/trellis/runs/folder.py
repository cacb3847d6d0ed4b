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

from trellis.config import CONFIG_FILE as CONFIG
from trellis.config import TrainConfig, load_config, to_json
from trellis.runs.checkpoint import sync_folder, write_and_sync

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
"""Settings that may change when a run is resumed: none of them changes what an iteration does."""

LOCK_SECONDS = 2.0
"""Time to wait for another process to release a run: one that was killed takes a moment."""


class RunFolderError(RuntimeError):
    """A folder cannot be used as asked; the message says why and what to do."""


class RunLockedError(RunFolderError):
    """Another process uses the run folder."""

    exit_code = 3
    """Exit code of a command that fails for this reason."""


class RunExistsError(RunFolderError):
    """The folder for a new run already holds a run."""

    exit_code = 4
    """Exit code of a command that fails for this reason."""


def resume_command(folder: Path) -> str:
    """Return the command that continues a run."""
    return shlex.join(["trellis", "resume", str(folder)])


def read_config(folder: Path | str) -> TrainConfig:
    """Return the configuration of the run in `folder`."""
    require_run(Path(folder))
    try:
        config = load_config(Path(folder) / CONFIG)
    except ValueError as error:
        raise RunFolderError(str(error)) from error
    require_module_elsewhere(config.env, Path(folder))
    return config


def require_module_elsewhere(env_id: str, folder: Path) -> None:
    """Raise if `module:Id` names a module in the run folder itself.

    Making that environment would run code that came with the run.
    """
    module, colon, _ = env_id.rpartition(":")
    package = module.partition(".")[0]
    if not colon or not package.isidentifier() or package in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(package)  # of the outermost, which imports nothing
    except (ImportError, ValueError):
        return
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin]
    if any(Path(place).resolve().is_relative_to(folder.resolve()) for place in places if place):
        raise RunFolderError(
            f"{folder / CONFIG} names the environment {env_id!r}, whose module {package} lies"
            " in the run itself. Loading a run runs no code from it: put the module where"
            " Python finds it otherwise if you trust it"
        )


def require_run(folder: Path) -> None:
    """Raise unless there is a run in this folder."""
    if not (folder / CONFIG).is_file():
        raise RunFolderError(f"{folder} is not a run: there is no {CONFIG} in it; check the path")


def require_empty(folder: Path) -> None:
    """Raise unless a new run can start in this folder."""
    if folder.is_dir() and all(path.name == f"{CONFIG}.tmp" for path in folder.iterdir()):
        return
    if (folder / CONFIG).exists():
        raise RunExistsError(
            f"{folder} holds a run already; choose another --out, or continue it:"
            f" {resume_command(folder)}"
        )
    if folder.exists():
        raise RunFolderError(f"{folder} exists and is not empty; choose another --out")


def require_same_run(folder: Path, config: TrainConfig) -> None:
    """Raise unless this configuration can continue the run in `folder`."""
    old, new = flatten(as_json(read_config(folder))), flatten(as_json(config))
    names = sorted((old.keys() | new.keys()) - MAY_CHANGE)
    refused = [name for name in names if old.get(name) != new.get(name)]
    if refused:
        words = "; ".join(f"{n} is {old.get(n)!r} there, {new.get(n)!r} here" for n in refused)
        raise RunFolderError(f"{folder} is a run with other settings: {words}")


def as_json(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as they are written to JSON; raise if that is not possible."""
    try:
        return json.loads(json.dumps(to_json(config), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RunFolderError(
            f"the settings cannot be written as JSON: {error}. Options of an environment that are"
            " not plain values belong into a callable that makes it"
        ) from error


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by full name, such as `step.max_kl`."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def write_config(folder: Path, config: TrainConfig) -> None:
    """Write or replace the configuration; make the folder if there is none."""
    text = json.dumps(as_json(config), indent=2) + "\n"
    make_folder(folder)
    try:
        write_whole(folder / CONFIG, text)
    except OSError as error:
        raise _unusable(folder / CONFIG, error) from error


def make_folder(folder: Path) -> None:
    """Make the folder if there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"cannot write {path}: {error.strerror or error}; choose another --out")


def write_whole(path: Path, text: str) -> None:
    """Write this text to a file, which has either all of it or its old content."""
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
    """Lock a folder, in which only one process may train; the lock ends with its process."""
    try:
        import fcntl
    except ImportError:  # This platform has no such locks.
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
                    raise RunLockedError(
                        f"{folder} is used by another process; wait for it or stop it"
                    ) from error
                time.sleep(0.05)
            except OSError:  # A file system that cannot lock.
                break
        yield
    finally:
        os.close(descriptor)
