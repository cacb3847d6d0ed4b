"""Exports a policy: builds the file in memory, checks it in its own runtime, then writes it."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Literal, NamedTuple

import trellis
from trellis.export.build import build_program
from trellis.export.check import verify
from trellis.export.program import ExportError
from trellis.policies.saved import SavedPolicy
from trellis.safe_files import write_file

Format = Literal["onnx", "stablehlo", "numpy"]
"""Name of a file format."""


class FormatInfo(NamedTuple):
    """What an export in one format needs and writes."""

    suffix: str
    """Ending of the file's name."""
    packages: tuple[str, ...]
    """Packages of the extra `export` that the export imports."""


FORMATS: dict[Format, FormatInfo] = {
    "onnx": FormatInfo(".onnx", ("onnx", "onnxruntime")),
    "stablehlo": FormatInfo(".stablehlo", ("flatbuffers",)),
    "numpy": FormatInfo(".npz", ()),
}
RUNNER = "numpy_policy.py"
"""File that runs a policy in the format numpy; it is written beside the policy."""


class Exported(NamedTuple):
    """An exported policy."""

    path: Path
    files: tuple[Path, ...]
    """All files that were written."""
    size: int
    """Size of the policy's file in bytes."""
    error: float
    """Largest error of an action on the observations of the check."""


def export_policy(saved: SavedPolicy, path: str | Path, *, format: Format = "onnx") -> Exported:
    """Write a policy as one file that maps observations to actions.

    Args:
        saved: The policy.
        path: File to write; what has this name is replaced.
        format: File format.

    Raises:
        ExportError: The policy has no export, a package is missing, or the check failed. Nothing
            was written.

    Example:
        >>> import tempfile
        >>> from trellis import TRPO, SavedPolicy
        >>> folder = tempfile.mkdtemp()
        >>> TRPO("CartPole-v1").learn(2_048).save(folder)
        >>> done = export_policy(SavedPolicy.load(folder), folder + "/policy.npz", format="numpy")
        >>> done.path.name, done.error < 1e-5
        ('policy.npz', True)
    """
    if format not in FORMATS:
        raise ExportError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    _require_packages(format)
    program = build_program(saved)
    module = _load_module(format)
    data = module.serialize(program, describe(saved))
    error = verify(saved, program, module.open_policy(data, program))
    path = Path(path)
    written = [path]
    write_file(path.parent, path.name, data)
    if format == "numpy":
        written.append(path.parent / RUNNER)
        write_file(path.parent, RUNNER, (Path(__file__).parent / RUNNER).read_bytes())
    return Exported(path, tuple(written), len(data), error)


def _load_module(format: Format) -> Any:
    """Return the module of a format, with `serialize` and `open_policy`."""
    return importlib.import_module(f"trellis.export.{format}_format")


def describe(saved: SavedPolicy) -> dict[str, str]:
    """Return where a policy comes from, as texts that go into the file."""
    return {
        "trellis_version": trellis.__version__,
        "environment": saved.config.env,
        "observation_space": str(saved.spaces[0]),
        "action_space": str(saved.spaces[1]),
        "training_steps": str(saved.steps),
        "policy": "best" if saved.is_best else "last",
    }


def _require_packages(format: Format) -> None:
    missing = [name for name in FORMATS[format].packages if not importlib.util.find_spec(name)]
    if missing:
        raise ExportError(
            f"--format {format} needs {' and '.join(missing)}: pip install 'trellis-rl[export]'"
        )
