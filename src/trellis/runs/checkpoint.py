"""Writing checkpoints: a folder of safetensors and JSON that is there whole or not at all.

Both files are written to a temporary folder beside the checkpoint, synced and renamed, so that a
process may be killed at any moment. `checkpoint_format.py` has the format and reads it.
"""

import errno
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from trellis.checkpoint_format import (
    ARRAYS,
    REPLACED,
    SCHEMA_VERSION,
    VALUES,
    Checkpoint,
    CheckpointError,
    checkpoint_folders,
    digest,
    encode_values,
)
from trellis.runs.provenance import commit

_TEMPORARY = ".tmp-"


def save(
    folder: Path,
    iteration: int,
    arrays: Mapping[str, NDArray[Any]],
    values: Mapping[str, Any],
    *,
    keep: int,
) -> Path:
    """Write a checkpoint into `folder`, a run's `checkpoints/`, and return its path.

    The last `keep` up to this one stay. Later ones are removed: they belong to a future that the
    run has left, because it continued from before a damaged checkpoint.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    arrays_bytes = safetensors.numpy.save({k: _plain(k, a) for k, a in arrays.items()})
    envelope = {
        "schema_version": SCHEMA_VERSION,
        "iteration": int(iteration),
        "versions": installed_versions(),
        "arrays_sha256": hashlib.sha256(arrays_bytes).hexdigest(),
        "values": encode_values(values, "values"),
    }
    envelope["sha256"] = digest(envelope)
    values_bytes = json.dumps(envelope, indent=1, allow_nan=False).encode()
    parent = Path(folder)
    path = parent / f"{iteration:06d}"
    temporary = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove(parent, _TEMPORARY)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=parent))
        write_and_sync(temporary / ARRAYS, arrays_bytes)
        write_and_sync(temporary / VALUES, values_bytes)
        sync_folder(temporary)
        if path.exists():  # A folder that is not empty cannot be renamed over.
            _remove(parent, REPLACED)
            os.replace(path, parent / f"{REPLACED}{path.name}")
        os.replace(temporary, path)
        sync_folder(parent)
    except OSError as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(_why_not_written(error, iteration, parent)) from error
    _prune(parent, iteration, keep)
    return path


@functools.cache
def installed_versions() -> dict[str, str]:
    """Return the installed versions of what a bit-for-bit future depends on."""
    versions = {"commit": commit()}
    for name in ("trellis-rl", "jax", "jaxlib", "numpy", "mujoco", "gymnasium", "ale-py", "cma"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def version_differences(checkpoint: Checkpoint) -> list[str]:
    """Return how a checkpoint's software differs from this one: `["jax 0.10.2, here 0.10.3"]`."""
    here = installed_versions()
    # Commits are for the record: most of them change nothing for a run.
    names = sorted((here.keys() | checkpoint.versions.keys()) - {"commit"})
    pairs = [(n, checkpoint.versions.get(n, "not recorded"), here.get(n, "unknown")) for n in names]
    return [f"{name} {there}, here {ours}" for name, there, ours in pairs if there != ours]


def _plain(name: str, array: Any) -> NDArray[Any]:
    """Return a little-endian, contiguous copy: safetensors copies memory and ignores strides."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"array {name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    return np.array(array, array.dtype.newbyteorder("<"), order="C")


def write_and_sync(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    if os.name == "nt":  # Folders cannot be opened there, and renames are journaled.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why_not_written(error: OSError, iteration: int, parent: Path) -> str:
    what = f"the checkpoint of iteration {iteration} in {parent}"
    intact = "; earlier checkpoints are intact" if checkpoint_folders(parent) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left to write {what}{intact}: free some space, then resume the run"
    return f"cannot write {what}: {error.strerror or error}{intact}"


def _prune(parent: Path, iteration: int, keep: int) -> None:
    _remove(parent, REPLACED)
    numbered = [path for path in checkpoint_folders(parent) if path.name.isdigit()]
    past = [path for path in numbered if int(path.name) <= iteration]
    for path in set(numbered) - set(past[-keep:]):
        # Renamed first, so that nothing half removed ever has a checkpoint's name.
        gone = parent / f"{_TEMPORARY}gone-{path.name}"
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(path, gone)
    _remove(parent, _TEMPORARY)


def _remove(parent: Path, prefix: str) -> None:
    for path in parent.glob(f"{prefix}*"):
        shutil.rmtree(path, ignore_errors=True)
