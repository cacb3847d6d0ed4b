"""Write checkpoints: a folder of safetensors and JSON that is there whole or not at all.

Both files are written to a temporary folder beside the checkpoint, synced and renamed, so that a
process may be killed at any moment. The settings are part of the checkpoint: one rename replaces
them together with the parameters. `checkpoint_format.py` has the format and reads it.
"""

import errno
import functools
import hashlib
import importlib.metadata
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from trellis.array_file import MOST_ARRAYS
from trellis.checkpoint_format import (
    ARRAYS,
    ARRAYS_BYTES,
    REPLACED,
    SCHEMA_VERSION,
    VALUES,
    VALUES_BYTES,
    Checkpoint,
    CheckpointError,
    checkpoint_folders,
)
from trellis.runs.provenance import commit
from trellis.safe_files import make_folder, open_folder, remove
from trellis.strict_json import digest, encode_values

_TEMPORARY = ".tmp-"


def save(
    folder: Path,
    iteration: int,
    arrays: Mapping[str, NDArray[Any]],
    values: Mapping[str, Any],
    *,
    keep: int,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint into `folder`, a run's `checkpoints/`, and return its path.

    The last `keep` up to this one stay. Later ones are removed: they belong to a future that the
    run has left, because it continued from before a damaged checkpoint.

    Args:
        folder: Folder `checkpoints` of a run.
        iteration: Iteration after which the state is saved.
        arrays: Named arrays.
        values: Named plain values.
        keep: Number of checkpoints that stay.
        config: Settings of the run as plain JSON values.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    arrays_bytes = safetensors.numpy.save({k: _plain(k, a) for k, a in arrays.items()})
    envelope = {
        "schema_version": SCHEMA_VERSION,
        "iteration": int(iteration),
        "versions": installed_versions(),
        "arrays_sha256": hashlib.sha256(arrays_bytes).hexdigest(),
        "arrays_bytes": len(arrays_bytes),
        "config": config,
        "values": encode_values(values, "values"),
    }
    envelope["sha256"] = digest(envelope)
    values_bytes = json.dumps(envelope, indent=1, allow_nan=False).encode()
    _require_size(iteration, len(arrays), len(arrays_bytes), len(values_bytes))
    parent = Path(folder)
    files = {ARRAYS: arrays_bytes, VALUES: values_bytes}
    try:
        parent.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_and_prune(parent, iteration, files, keep)
        except FileNotFoundError:  # Somebody has removed the folder in the meantime.
            _write_and_prune(parent, iteration, files, keep)
    except OSError as error:
        raise CheckpointError(_why_not_written(error, iteration, parent)) from error
    return parent / f"{iteration:06d}"


def _write_and_prune(parent: Path, iteration: int, files: Mapping[str, bytes], keep: int) -> None:
    make_folder(parent.parent, parent.name)
    with open_folder(parent.parent, parent.name) as at:
        _remove(at, _TEMPORARY)
        _write(at, f"{iteration:06d}", files)
        _prune(at, parent, iteration, keep)


def _write(at: int, name: str, files: Mapping[str, bytes]) -> None:
    """Write a folder of files into the open folder `at`; it takes its name when it is whole."""
    temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
    os.mkdir(temporary, dir_fd=at)
    try:
        inside = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        try:
            for file_name, data in files.items():
                write_and_sync(inside, file_name, data)
            os.fsync(inside)
        finally:
            os.close(inside)
        if name in os.listdir(at):  # A folder that is not empty cannot be renamed over.
            _remove(at, REPLACED)
            os.replace(name, f"{REPLACED}{name}", src_dir_fd=at, dst_dir_fd=at)
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        os.fsync(at)
    except OSError:
        remove(temporary, dir_fd=at)
        raise


def write_and_sync(at: int, name: str, data: bytes) -> None:
    """Write a new file into the open folder `at` and wait until the disk has it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=at), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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


def _require_size(iteration: int, arrays: int, arrays_bytes: int, values_bytes: int) -> None:
    """Raise if a checkpoint would exceed a limit of the reader."""
    for what, size, limit in (
        ("arrays", arrays, MOST_ARRAYS),
        ("bytes of arrays", arrays_bytes, ARRAYS_BYTES),
        ("bytes of values", values_bytes, VALUES_BYTES),
    ):
        if size > limit:
            raise CheckpointError(
                f"the checkpoint of iteration {iteration} has {size:,} {what}, more than the"
                f" {limit:,} that can be read back: use a smaller policy or fewer environments"
            )


def _why_not_written(error: OSError, iteration: int, parent: Path) -> str:
    what = f"the checkpoint of iteration {iteration} in {parent}"
    try:
        intact = "; earlier checkpoints are intact" if checkpoint_folders(parent) else ""
    except CheckpointError:
        intact = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left to write {what}{intact}: free some space, then resume the run"
    return f"cannot write {what}: {error.strerror or error}{intact}"


def _prune(at: int, parent: Path, iteration: int, keep: int) -> None:
    """Remove checkpoints that are too old, or of a future that the run has left."""
    _remove(at, REPLACED)
    numbered = [path.name for path in checkpoint_folders(parent) if path.name.isdigit()]
    past = [name for name in numbered if int(name) <= iteration]
    for name in sorted(set(numbered) - set(past[-keep:])):
        # Renamed first, so that nothing half removed ever has a checkpoint's name.
        gone = f"{_TEMPORARY}gone-{secrets.token_hex(8)}"
        os.replace(name, gone, src_dir_fd=at, dst_dir_fd=at)
    _remove(at, _TEMPORARY)


def _remove(at: int, prefix: str) -> None:
    for name in os.listdir(at):
        if name.startswith(prefix):
            remove(name, dir_fd=at)
