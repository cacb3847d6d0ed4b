"""Change run folders as an attacker would: with checksums that fit."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from trellis import checkpoint_format, strict_json
from trellis.config.file import config_text
from trellis.runs.log_lines import add_checksum


def newest(run: Path) -> Path:
    """The newest checkpoint of a run."""
    return max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def read_settings(run: Path) -> dict[str, Any]:
    values = json.loads((run / "config.json").read_text())
    values.pop("sha256", None)
    return values


def forge_config(run: Path, *, in_checkpoint: bool = True, **changes: Any) -> None:
    """Change settings, such as `env="x:Id"` or `step={"max_kl": 1}`, everywhere."""
    values = merged(read_settings(run), changes)
    (run / "config.json").write_text(config_text(values))
    if in_checkpoint:
        for path in (newest(run), *(run / "policies").glob("*")):
            forge_values(path, config=values)


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for name, value in changes.items():
        old = result.get(name)
        nested = isinstance(old, dict) and isinstance(value, dict) and name != "env_options"
        result[name] = merged(old, value) if nested else value
    return result


def forge_values(path: Path, **changes: Any) -> None:
    """Change entries of values.json, such as `values={...}`; None removes one."""
    envelope = {**json.loads((path / "values.json").read_text()), **changes}
    envelope.pop("sha256", None)
    envelope["sha256"] = strict_json.digest(envelope)
    (path / "values.json").write_text(json.dumps(envelope))


def change_values(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the values of a checkpoint in place."""
    values = json.loads((path / "values.json").read_text())["values"]
    change(values)
    forge_values(path, values=values)


def forge_bytes(path: Path, data: bytes) -> None:
    """Replace the file of the arrays."""
    (path / "arrays.safetensors").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    forge_values(path, arrays_sha256=digest, arrays_bytes=len(data))


def forge_arrays(path: Path, **changes: Any) -> None:
    """Replace arrays by name (`/` as `__`); None removes one."""
    arrays = dict(checkpoint_format.load(path).arrays)
    for name, value in changes.items():
        name = name.replace("__", "/")
        arrays.pop(name, None)
        if value is not None:
            arrays[name] = np.ascontiguousarray(value) if np.ndim(value) else np.array(value)
    forge_bytes(path, safetensors.numpy.save(arrays))


def forge_rows(run: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the rows of the log in place."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("checksum", None)
    change(rows)
    lines = [add_checksum(json.dumps(row).encode()) for row in rows]
    (run / "metrics.jsonl").write_bytes(b"".join(lines))
