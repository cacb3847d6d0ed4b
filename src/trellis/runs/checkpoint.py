"""Checkpoints: a folder of safetensors and JSON that is there whole or not at all.

`checkpoints/000123/` holds `arrays.safetensors` and `values.json`. Both are written to a temporary
folder beside it, synced and renamed, so that a process may be killed at any moment. Each file is
covered by a SHA-256 that is checked before anything is believed, and loading parses: nothing on the
way in can run code. A checkpoint that does not check out is an error, never a guess.
"""

import errno
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from trellis.runs.provenance import commit

SCHEMA_VERSION = 1
"""Of values.json; raised when a key changes its meaning."""

CHECKPOINTS = "checkpoints"
"""The folder of a run that they are in."""
ARRAYS = "arrays.safetensors"
VALUES = "values.json"

_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_NUMBER = re.compile(r"\d{6,}")
_TEMPORARY, _REPLACED = ".tmp-", ".old-"
_NON_FINITE = "$float"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says which, why, and what to do."""


class CheckpointWarning(UserWarning):
    """The newest checkpoint is damaged, and an earlier one was taken."""


class Checkpoint(NamedTuple):
    """What was saved: `versions` are those of the software that wrote it."""

    arrays: dict[str, NDArray[Any]]
    values: dict[str, Any]
    iteration: int
    versions: dict[str, str]


def save(
    folder: Path,
    iteration: int,
    arrays: Mapping[str, NDArray[Any]],
    values: Mapping[str, Any],
    *,
    keep: int,
) -> Path:
    """Writes a checkpoint into `folder`, a run's `checkpoints/`; its path.

    The last `keep` up to this one stay. Any beyond this iteration belong to a future that the run
    has turned away from (it fell back behind a damaged one), and go.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    arrays_bytes = safetensors.numpy.save({k: _plain(k, a) for k, a in arrays.items()})
    envelope = {
        "schema_version": SCHEMA_VERSION,
        "iteration": int(iteration),
        "versions": installed_versions(),
        "arrays_sha256": hashlib.sha256(arrays_bytes).hexdigest(),
        "values": _encode(values, "values"),
    }
    envelope["sha256"] = _digest(envelope)
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
            _remove(parent, _REPLACED)
            os.replace(path, parent / f"{_REPLACED}{path.name}")
        os.replace(temporary, path)
        sync_folder(parent)
    except OSError as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(_why_not_written(error, iteration, parent)) from error
    _prune(parent, iteration, keep)
    return path


def load(path: Path) -> Checkpoint:
    """The checkpoint in the folder `path`, checked against its hashes."""
    path = Path(path)
    try:
        envelope = _strict_json((path / VALUES).read_bytes())
        arrays_bytes = (path / ARRAYS).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} is not a whole checkpoint: {error.strerror or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / VALUES} is damaged: {error}") from error
    if not isinstance(envelope, dict):
        raise CheckpointError(f"{path / VALUES} is damaged: not a JSON object")
    version = envelope.get("schema_version")
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {version}, this software reads {SCHEMA_VERSION};"
            f" it was written by {envelope.get('versions')}"
        )
    if envelope.pop("sha256", None) != _digest(envelope):
        raise CheckpointError(f"{path / VALUES} is damaged: its SHA-256 does not match")
    if envelope.get("arrays_sha256") != hashlib.sha256(arrays_bytes).hexdigest():
        raise CheckpointError(f"{path / ARRAYS} is damaged: its SHA-256 does not match")
    try:
        arrays = safetensors.numpy.load(arrays_bytes)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path / ARRAYS} is not a safetensors file: {error}") from error
    arrays = {name: np.array(array) for name, array in arrays.items()}
    try:
        values, versions = _decode(envelope["values"]), dict(envelope["versions"])
        return Checkpoint(arrays, dict(values), int(envelope["iteration"]), versions)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / VALUES} is not a checkpoint's: {error!r}") from error


def load_latest(folder: Path) -> Checkpoint:
    """The newest good checkpoint in `folder`; warns about each that had to be passed over."""
    parent = Path(folder)
    damaged: list[str] = []
    for path in reversed(_all(parent)):
        try:
            checkpoint = load(path)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(
                f"{'; '.join(damaged)}. Taking {path} instead.", CheckpointWarning, stacklevel=2
            )
        return checkpoint
    if damaged:
        raise CheckpointError(f"no checkpoint in {parent} is good: {'; '.join(damaged)}")
    raise CheckpointError(f"there is no checkpoint in {parent}")


@functools.cache
def installed_versions() -> dict[str, str]:
    """Versions of what a bit-for-bit future depends on, as they are installed here."""
    versions = {"commit": commit()}
    for name in ("trellis-rl", "jax", "jaxlib", "numpy", "mujoco", "gymnasium", "ale-py", "cma"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def version_differences(checkpoint: Checkpoint) -> list[str]:
    """`["jax 0.10.2, here 0.10.3"]` where a checkpoint's software was not this one."""
    here = installed_versions()
    # Commits are for the record: most of them change nothing for a run.
    names = sorted((here.keys() | checkpoint.versions.keys()) - {"commit"})
    pairs = [(n, checkpoint.versions.get(n, "not recorded"), here.get(n, "unknown")) for n in names]
    return [f"{name} {there}, here {ours}" for name, there, ours in pairs if there != ours]


def _plain(name: str, array: Any) -> NDArray[Any]:
    """Little-endian and contiguous: safetensors copies memory and does not look at strides."""
    array = np.asarray(array)
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"array {name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    return np.array(array, array.dtype.newbyteorder("<"), order="C")


def _encode(value: Any, where: str) -> Any:
    """Plain JSON; floats that JSON has no word for become {"$float": "nan"}."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NON_FINITE: repr(value)}
    if isinstance(value, list | tuple):
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        bad = [key for key in value if not isinstance(key, str) or key == _NON_FINITE]
        if bad:
            raise TypeError(f"{where} has the key {bad[0]!r}, which a checkpoint cannot hold")
        return {key: _encode(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is a {type(value).__name__}, which a checkpoint cannot hold")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_NON_FINITE}:
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value[_NON_FINITE]]
        return {key: _decode(item) for key, item in value.items()}
    return value


def _strict_json(data: bytes) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def _digest(envelope: Mapping[str, Any]) -> str:
    canonical = json.dumps(envelope, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_and_sync(path: Path, data: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Waits until the disk has the names in a folder."""
    if os.name == "nt":  # Folders cannot be opened there, and renames are journaled.
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _why_not_written(error: OSError, iteration: int, parent: Path) -> str:
    what = f"the checkpoint of iteration {iteration} in {parent}"
    intact = "; earlier checkpoints are intact" if _all(parent) else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left to write {what}{intact}: free some space, then resume the run"
    return f"cannot write {what}: {error.strerror or error}{intact}"


def newest_iteration(parent: Path) -> int | None:
    """Of the newest checkpoint by its name, whole or not; None without any."""
    numbers = [int(path.name) for path in _all(parent) if _NUMBER.fullmatch(path.name)]
    return max(numbers, default=None)


def _all(parent: Path) -> list[Path]:
    """Checkpoints from the oldest to the newest, with one that a kill left moved aside before its
    successor of the same number."""
    found = []
    for path in parent.iterdir() if parent.is_dir() else ():
        name = path.name.removeprefix(_REPLACED)
        if _NUMBER.fullmatch(name):
            found.append((int(name), name == path.name, path))
    return [path for _, _, path in sorted(found)]


def _prune(parent: Path, iteration: int, keep: int) -> None:
    _remove(parent, _REPLACED)
    numbered = [path for path in _all(parent) if _NUMBER.fullmatch(path.name)]
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
