"""The files of a checkpoint, and how they are read.

`checkpoints/000123/` holds `arrays.safetensors` and `values.json`. Each file is covered by a
SHA-256 that is checked before anything is believed, and loading only parses: nothing on the way in
can run code. A damaged checkpoint is an error, never a guess. `runs/checkpoint.py` writes them.
"""

import hashlib
import json
import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

SCHEMA_VERSION = 1
"""Version of values.json; raised when a key changes its meaning."""

CHECKPOINTS = "checkpoints"
"""Folder of a run that holds its checkpoints."""
ARRAYS = "arrays.safetensors"
VALUES = "values.json"
REPLACED = ".old-"
"""Prefix of a checkpoint that is about to be replaced by one of the same number."""

_NUMBER = re.compile(r"\d{6,}")
_NON_FINITE = "$float"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message says which, why, and what to do."""


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


def load(path: Path) -> Checkpoint:
    """Load the checkpoint in the folder `path`, checked against its hashes."""
    path = Path(path)
    try:
        envelope = strict_json((path / VALUES).read_bytes())
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
    if envelope.pop("sha256", None) != digest(envelope):
        raise CheckpointError(f"{path / VALUES} is damaged: its SHA-256 does not match")
    if envelope.get("arrays_sha256") != hashlib.sha256(arrays_bytes).hexdigest():
        raise CheckpointError(f"{path / ARRAYS} is damaged: its SHA-256 does not match")
    try:
        arrays = safetensors.numpy.load(arrays_bytes)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path / ARRAYS} is not a safetensors file: {error}") from error
    arrays = {name: np.array(array) for name, array in arrays.items()}
    try:
        values, versions = decode_values(envelope["values"]), dict(envelope["versions"])
        return Checkpoint(arrays, dict(values), int(envelope["iteration"]), versions)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / VALUES} is not a checkpoint's: {error!r}") from error


def load_latest(folder: Path) -> Checkpoint:
    """Load the newest intact checkpoint in `folder`, with a warning for each damaged one."""
    parent = Path(folder)
    damaged: list[str] = []
    for path in reversed(checkpoint_folders(parent)):
        try:
            checkpoint = load(path)
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


def newest_iteration(parent: Path) -> int | None:
    """Return the iteration of the newest checkpoint, intact or not; None without any."""
    names = [path.name for path in checkpoint_folders(parent) if path.name.isdigit()]
    return int(names[-1]) if names else None


def checkpoint_folders(parent: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first.

    A kill can leave a checkpoint moved aside; it comes before its successor of the same number.
    """
    found = []
    for path in parent.iterdir() if parent.is_dir() else ():
        name = path.name.removeprefix(REPLACED)
        if _NUMBER.fullmatch(name):
            found.append((int(name), name == path.name, path))
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


def strict_json(data: bytes) -> Any:
    """Parse JSON without the extensions of Python, such as NaN."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def digest(envelope: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the values in canonical form."""
    canonical = json.dumps(envelope, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
