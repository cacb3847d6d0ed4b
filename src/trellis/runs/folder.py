"""The folder of a run: its settings, who may use it, and the lock of who does.

config.json      every setting of the run, with a checksum
metrics.jsonl    one line per iteration
tensorboard/     the same numbers, if tensorboardX is installed
checkpoints/     the last few whole states
"""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trellis.config import CONFIG_FILE as CONFIG
from trellis.config import TrainConfig
from trellis.config.file import config_text, differences, read_run_config, settings_json
from trellis.safe_files import is_temporary, is_there, remove_temporaries, write_file
from trellis.strict_json import shown

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
    """Return the configuration of the run in `folder`; no environment is imported."""
    require_run(Path(folder))
    try:
        return read_run_config(folder)
    except ValueError as error:
        raise RunFolderError(str(error)) from error
    except OSError as error:
        raise RunFolderError(
            f"{Path(folder) / CONFIG} cannot be read: {error.strerror or error}"
        ) from error


def require_run(folder: Path) -> None:
    """Raise unless there is a run in this folder."""
    if not is_there(folder, CONFIG):
        raise RunFolderError(f"{folder} is not a run: there is no {CONFIG} in it; check the path")


def require_empty(folder: Path) -> None:
    """Raise unless a new run can start in this folder."""
    if folder.is_dir() and all(_is_left_over(path.name) for path in folder.iterdir()):
        return
    if is_there(folder, CONFIG):
        raise RunExistsError(
            f"{folder} holds a run already; choose another --out, or continue it:"
            f" {resume_command(folder)}"
        )
    if folder.exists():
        raise RunFolderError(f"{folder} exists and is not empty; choose another --out")


def _is_left_over(name: str) -> bool:
    """Return whether an entry is what a process left that was killed before its run started."""
    return is_temporary(name, CONFIG) or name == f"{CONFIG}.tmp"  # The latter by earlier versions.


def require_same_run(folder: Path, config: TrainConfig) -> None:
    """Raise unless this configuration can continue the run in `folder`."""
    refused = differences(as_json(read_config(folder)), as_json(config))
    if refused:
        words = "; ".join(
            f"{n} is {shown(old)} there, {shown(new)} here" for n, old, new in refused
        )
        raise RunFolderError(f"{folder} is a run with other settings: {words}")


def as_json(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as they are written to JSON; raise if that is not possible."""
    try:
        return settings_json(config)
    except (TypeError, ValueError) as error:
        raise RunFolderError(
            f"the settings cannot be written as JSON: {error}. Options of an environment that are"
            " not plain values belong into a callable that makes it"
        ) from error


def write_config(folder: Path, config: TrainConfig) -> None:
    """Write or replace the configuration; make the folder if there is none."""
    text = config_text(as_json(config))
    make_folder(folder)
    try:
        remove_temporaries(folder, CONFIG)
        write_file(folder, CONFIG, text.encode())
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
    write_file(path.parent, path.name, text.encode())


@contextlib.contextmanager
def locked(folder: Path, seconds: float | None = None) -> Iterator[None]:
    """Lock a folder, in which only one process may train; the lock ends with its process."""
    try:
        import fcntl
    except ImportError:  # This platform has no such locks.
        yield
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RunFolderError(f"cannot open {folder}: {error.strerror or error}") from error
    try:
        deadline = time.monotonic() + (LOCK_SECONDS if seconds is None else seconds)
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
