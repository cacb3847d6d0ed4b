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
from trellis.safe_files import open_file, open_folder, read_file
from trellis.strict_json import INT64, digest, shown

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
HEADER_BYTES = 1 << 20
"""Largest size in bytes of the header of arrays.safetensors, which lists the arrays."""
QUICK_BYTES = 1 << 26
"""Size in bytes up to which a file that does not fit is hashed, to tell damage from a mismatch."""
MOST_ARRAYS = 10_000
"""Largest number of arrays in a checkpoint."""
DTYPES = {
    "BOOL": "bool",
    **{f"U{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"I{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""Types of arrays, as safetensors and as NumPy name them."""

_NUMBER = re.compile(r"[0-9]{6,18}")
_NON_FINITE = "$float"


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


class ArraySpec(NamedTuple):
    """Type and shape of an array that has not been read yet."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


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
    run, below = path.parent.parent, f"{path.parent.name}/{path.name}"
    try:
        envelope = _read_envelope(path, read_file(run, f"{below}/{VALUES}", limit=VALUES_BYTES))
        with open_file(run, f"{below}/{ARRAYS}", limit=ARRAYS_BYTES) as file:
            return _read_arrays(path, envelope, file, check)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
        raise CheckpointError(f"{path} is not a whole checkpoint: {reason}") from error


def _read_envelope(path: Path, data: bytes) -> dict[str, Any]:
    """Return the content of values.json, without its checksum, which has been verified."""
    where = path / VALUES
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
        specs, starts = _read_header(file)
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
    arrays = {name: _read_array(file, starts[name], specs[name]) for name in names}
    return Checkpoint(arrays, values, envelope["iteration"], dict(envelope["versions"]), config)


def _require_hash(path: Path, file: BinaryIO, expected: str) -> None:
    file.seek(0)
    if hashlib.file_digest(cast(Any, file), "sha256").hexdigest() != expected:
        raise CheckpointError(f"{path} is damaged: its SHA-256 does not match")


def _read_header(file: BinaryIO) -> tuple[dict[str, ArraySpec], dict[str, int]]:
    """Return type and shape of each array, and where in the file it starts.

    The format: the size of the header (8 bytes), the header (JSON), and the arrays one after the
    other. They have to fill the file.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(HEADER_BYTES, end - 8):
        raise ValueError(f"its header has {length:,} bytes")
    header = strict_json.parse(file.read(length), integers_below=INT64)
    if not isinstance(header, dict) or len(header) > MOST_ARRAYS:
        raise ValueError("its header is not a list of arrays")
    header.pop("__metadata__", None)
    specs, starts, filled = {}, {}, []
    for name, about in header.items():
        spec = ArraySpec(np.dtype(DTYPES[about["dtype"]]), tuple(about["shape"]))
        start, stop = about["data_offsets"]
        numbers = (*spec.shape, start, stop)
        if len(numbers) > 18 or not all(type(n) is int and 0 <= n < 2**40 for n in numbers):
            raise ValueError(f"the array {shown(name)} has no valid shape")
        if stop - start != math.prod(spec.shape) * spec.dtype.itemsize:
            raise ValueError(f"the array {shown(name)} has another size than its shape")
        specs[name], starts[name] = spec, 8 + length + start
        filled.append((start, stop))
    position = 0
    for start, stop in sorted(filled):
        if start != position:
            raise ValueError("its arrays overlap or leave gaps")
        position = stop
    if 8 + length + position != end:
        raise ValueError("its arrays do not fill the file")
    return specs, starts


def _read_array(file: BinaryIO, start: int, spec: ArraySpec) -> NDArray[Any]:
    array = np.empty(spec.shape, spec.dtype)
    file.seek(start)
    flat: Any = array.reshape(-1).view(np.uint8)
    if cast(Any, file).readinto(memoryview(flat)) != flat.nbytes:
        raise OSError("the file of the arrays became shorter while it was read")
    return array.astype(spec.dtype.newbyteorder("="), copy=False)


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


def encode_values(value: Any, where: str) -> Any:
    """Return `value` as plain JSON; NaN and infinities become {"$float": "nan"} and so on."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NON_FINITE: repr(value)}
    if isinstance(value, list | tuple):
        return [encode_values(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        bad = [key for key in value if not isinstance(key, str) or key == _NON_FINITE]
        if bad:
            raise TypeError(f"{where} has the key {bad[0]!r}, which a checkpoint cannot hold")
        return {key: encode_values(item, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(f"{where} is a {type(value).__name__}, which a checkpoint cannot hold")


def decode_values(value: Any) -> Any:
    """Return what `encode_values` was given."""
    if isinstance(value, list):
        return [decode_values(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_NON_FINITE}:
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value[_NON_FINITE]]
        return {key: decode_values(item) for key, item in value.items()}
    return value
