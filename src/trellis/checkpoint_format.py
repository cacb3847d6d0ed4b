"""Read checkpoints: the files, their checks, and the order of checkpoints in a run.

`checkpoints/000123/` holds `arrays.safetensors` and `values.json`. Both are covered by a SHA-256,
which is verified first. `values.json` also holds the settings of the run, so that parameters and
settings are always replaced together. Reading only parses: it runs no code. A damaged checkpoint is
an error, never a guess. `runs/checkpoint.py` writes the files.

| limit | value |
|---|---|
| size of `values.json` | 16 MiB |
| size of `arrays.safetensors` | 2 GiB |
| size of its header | 1 MiB |
| number of arrays | 10,000 |
"""

import hashlib
import math
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from trellis import strict_json
from trellis.array_file import ArraySpec, read_array, read_header
from trellis.safe_files import open_file, open_folder, read_file
from trellis.strict_json import INT64, decode_values, digest, shown

SCHEMA_VERSION = 1
"""Version of values.json; raised when a key changes its meaning."""

CHECKPOINTS = "checkpoints"
"""Folder of a run that holds its checkpoints."""
ARRAYS = "arrays.safetensors"
VALUES = "values.json"
REPLACED = ".old-"
"""Prefix of a checkpoint that is about to be replaced by one of the same number."""
VALUES_BYTES = 1 << 24
"""Largest size of values.json in bytes."""
ARRAYS_BYTES = 1 << 31
"""Largest size of arrays.safetensors in bytes."""
QUICK_BYTES = 1 << 26
"""Size in bytes up to which a file that does not fit is hashed, to tell damage from a mismatch."""
_NUMBER = re.compile(r"[0-9]{6,18}")


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says which, why, and what to do."""


class MismatchError(CheckpointError, ValueError):
    """A whole checkpoint does not fit its settings, policy or environment."""


class CheckpointWarning(UserWarning):
    """The newest checkpoint is damaged, and an earlier one was loaded."""


class Checkpoint(NamedTuple):
    """A checkpoint as it was saved."""

    arrays: dict[str, NDArray[Any]]
    """Named arrays, such as theta."""
    values: dict[str, Any]
    """Named plain values, such as steps."""
    iteration: int
    """Iteration after which it was written."""
    versions: dict[str, str]
    """Versions of the software that wrote it."""
    config: dict[str, Any] | None = None
    """Settings of the run as plain JSON values; None if an earlier version wrote it."""


class Header(NamedTuple):
    """What a checkpoint says about itself before its arrays are read."""

    specs: dict[str, ArraySpec]
    """Type and shape of each array."""
    values: dict[str, Any]
    """Named plain values."""
    config: dict[str, Any] | None
    """Settings of the run."""


CheckHeader = Callable[[Header], Collection[str] | None]
"""Raises `MismatchError`, or returns the names of the arrays to read; None for all of them."""


class Expected(NamedTuple):
    """Type, shape and range that an array must have."""

    dtypes: tuple[str, ...]
    """Names of the NumPy types that are allowed."""
    shape: tuple[int | None, ...]
    """Shape; None for any length."""
    least: float = -math.inf
    """Smallest value: 0 for counts and variances."""


FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")


def require_spec(name: str, found: ArraySpec | NDArray[Any], expected: Expected) -> None:
    """Raise `MismatchError` if an array has another type or shape than its settings imply."""
    shape = tuple(found.shape)
    fits = len(shape) == len(expected.shape) and all(
        wanted in (None, length) for length, wanted in zip(shape, expected.shape, strict=True)
    )
    if not fits or found.dtype.name not in expected.dtypes:
        lengths = ", ".join("any" if n is None else str(n) for n in expected.shape)
        raise MismatchError(
            f"the array {name} of this checkpoint has type {found.dtype.name} and shape"
            f" {shown(shape)}; its settings need {' or '.join(expected.dtypes)} and shape"
            f" ({lengths})"
        )


def require_values(name: str, array: NDArray[Any], expected: Expected) -> None:
    """Raise `MismatchError` if an array has another type, shape or range than it should have."""
    require_spec(name, array, expected)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise MismatchError(f"the array {name} of this checkpoint holds values that are not finite")
    if array.size and array.min() < expected.least:
        raise MismatchError(
            f"the array {name} of this checkpoint holds {array.min()}, which is less than"
            f" {expected.least:g}"
        )


def load(path: Path | str, check: CheckHeader | None = None) -> Checkpoint:
    """Load the checkpoint in the folder `path`, checked against its hashes.

    Args:
        path: Folder of the checkpoint, two levels below the run folder.
        check: Decides, before any array is read, whether the checkpoint fits and which arrays are
            needed. Default: all of them.

    Raises:
        CheckpointError: The checkpoint is damaged or incomplete.
        MismatchError: The checkpoint is whole, but `check` refused it.
    """
    path = Path(path)
    try:
        envelope = _read_envelope(path)
        with open_file(*_inside(path, ARRAYS), limit=ARRAYS_BYTES) as file:
            return _read_arrays(path, envelope, file, check)
    except OSError as error:
        raise _not_whole(path, error) from error


def read_versions(folder: Path | str) -> dict[str, str]:
    """Return the versions of the software that wrote the newest checkpoint in `folder`.

    Only `values.json` is read: its arrays may be large, and hashing them takes time.

    Raises:
        CheckpointError: No checkpoint has a readable `values.json`.
    """
    reason = f"there is no checkpoint in {folder}"
    for path in reversed(checkpoint_folders(folder)):
        try:
            return dict(_read_envelope(path)["versions"])
        except OSError as error:
            reason = str(_not_whole(path, error))
        except CheckpointError as error:
            reason = str(error)
    raise CheckpointError(reason)


def _inside(path: Path, name: str) -> tuple[Path, str]:
    """Return the run folder of a checkpoint, and the path of one of its files below that."""
    return path.parent.parent, f"{path.parent.name}/{path.name}/{name}"


def _not_whole(path: Path, error: OSError) -> CheckpointError:
    reason = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
    return CheckpointError(f"{path} is not a whole checkpoint: {reason}")


def _read_envelope(path: Path) -> dict[str, Any]:
    """Return the content of values.json, without its checksum, which has been verified."""
    where, data = path / VALUES, read_file(*_inside(path, VALUES), limit=VALUES_BYTES)
    try:
        envelope = strict_json.parse(data)
    except ValueError as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error
    if not isinstance(envelope, dict):
        raise CheckpointError(f"{where} is damaged: not a JSON object")
    version = envelope.get("schema_version")
    if version != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {shown(version)}, this software reads {SCHEMA_VERSION};"
            f" it was written by {shown(envelope.get('versions'))}"
        )
    if envelope.pop("sha256", None) != digest(envelope):
        raise CheckpointError(f"{where} is damaged: its SHA-256 does not match")
    try:
        _require_envelope(envelope)
        envelope["values"] = decode_values(envelope["values"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} is not a checkpoint's: {error!r}") from error
    name = path.name.removeprefix(REPLACED)
    if _NUMBER.fullmatch(name) and int(name) != envelope["iteration"]:
        raise CheckpointError(
            f"{path} is the checkpoint of iteration {envelope['iteration']} by its content: it was"
            " renamed or damaged"
        )
    return envelope


def _require_envelope(envelope: Mapping[str, Any]) -> None:
    for name, kind in (("values", dict), ("versions", dict), ("arrays_sha256", str)):
        if not isinstance(envelope[name], kind):
            raise TypeError(f"{name} is {shown(envelope[name])}")
    if not isinstance(envelope.get("config"), dict | None):
        raise TypeError(f"config is {shown(envelope['config'])}")
    for name, text in envelope["versions"].items():
        if not isinstance(text, str) or not f"{name}{text}".isprintable():
            raise TypeError(f"versions has {shown(name)}: {shown(text)}")
    iteration = envelope["iteration"]
    if type(iteration) is not int or not 0 <= iteration < INT64:
        raise TypeError(f"iteration is {shown(iteration)}")


def _read_arrays(
    path: Path, envelope: Mapping[str, Any], file: BinaryIO, check: CheckHeader | None
) -> Checkpoint:
    """Return the checkpoint; its arrays are hashed in pieces before any of them is read whole.

    Whether a large file fits is checked before it is hashed, which takes a second per gigabyte.
    """
    where, values, config = path / ARRAYS, envelope["values"], envelope.get("config")
    size = os.fstat(file.fileno()).st_size
    if envelope.get("arrays_bytes", size) != size:  # The first checkpoints did not hold it.
        raise CheckpointError(f"{where} is damaged: it has {size:,} bytes, not those it had")
    if size <= QUICK_BYTES:
        _require_hash(where, file, envelope["arrays_sha256"])
    try:
        specs, starts = read_header(file)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{where} is not a safetensors file: {error}") from error
    try:
        wanted = None if check is None else check(Header(specs, values, config))
    except MismatchError as error:
        if size <= QUICK_BYTES:
            raise
        raise CheckpointError(f"{where} is damaged or does not fit: {error}") from error
    if size > QUICK_BYTES:
        _require_hash(where, file, envelope["arrays_sha256"])
    names = specs if wanted is None else [name for name in specs if name in wanted]
    arrays = {name: read_array(file, starts[name], specs[name]) for name in names}
    return Checkpoint(arrays, values, envelope["iteration"], dict(envelope["versions"]), config)


def _require_hash(path: Path, file: BinaryIO, expected: str) -> None:
    file.seek(0)
    if hashlib.file_digest(cast(Any, file), "sha256").hexdigest() != expected:
        raise CheckpointError(f"{path} is damaged: its SHA-256 does not match")


def load_latest(folder: Path | str, check: CheckHeader | None = None) -> Checkpoint:
    """Load the newest intact checkpoint in `folder`, with a warning for each damaged one.

    Args:
        folder: The folder `checkpoints` of a run.
        check: See `load`. Its errors are final: no earlier checkpoint is tried.
    """
    parent = Path(folder)
    damaged: list[str] = []
    for path in reversed(checkpoint_folders(parent)):
        try:
            checkpoint = load(path, check)
        except MismatchError as error:
            raise type(error)(f"{path}: {error}") from error
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(
                f"{'; '.join(damaged)}. Loading {path} instead.", CheckpointWarning, stacklevel=2
            )
        return checkpoint
    if damaged:
        raise CheckpointError(f"every checkpoint in {parent} is damaged: {'; '.join(damaged)}")
    raise CheckpointError(f"there is no checkpoint in {parent}")


def newest_iteration(parent: Path | str) -> int | None:
    """Return the iteration of the newest checkpoint, intact or not; None without any."""
    names = [path.name for path in checkpoint_folders(parent) if path.name.isdigit()]
    return int(names[-1]) if names else None


def checkpoint_folders(parent: Path | str) -> list[Path]:
    """Return the folders of all checkpoints, oldest first.

    A kill can leave a checkpoint moved aside; it comes before its successor of the same number.

    Raises:
        CheckpointError: `parent` is a link, or it cannot be read.
    """
    parent, found = Path(parent), []
    try:
        with open_folder(parent.parent, *filter(None, [parent.name])) as at:
            names = os.listdir(at)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {parent}: {error.strerror or error}") from error
    for entry in names:
        name = entry.removeprefix(REPLACED)
        if _NUMBER.fullmatch(name):
            found.append((int(name), name == entry, parent / entry))
    return [path for _, _, path in sorted(found)]
