"""`trellis export`: write the policy of a run as a file that runs without Trellis."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from trellis.cli.errors import UsageError, require_writable, say, usage_errors
from trellis.cli.options import unset
from trellis.cli.runs import Best, Last, Run, load_policy, output_path


def export(
    run: Run,
    *,
    format_: Annotated[
        Literal["onnx", "stablehlo", "numpy"], tyro.conf.arg(name="format")
    ] = "onnx",
    out: Annotated[
        Path | None, unset("RUN/policy.onnx, .stablehlo or .npz", metavar="FILE")
    ] = None,
    best: Best = False,
    last: Last = False,
) -> int:
    """Export the policy of a run to ONNX, StableHLO or NumPy.

    The file maps observations to the most probable actions. It is checked against the policy on
    1,000 observations before it is written. No environment is imported.

    Args:
        format_: File format.
        out: File to write.
    """
    with usage_errors():
        from trellis.export import FORMATS, OBSERVATIONS, export_policy

        suffix = FORMATS[format_].suffix
        path = out or output_path(run, f"policy{suffix}")
        if path.suffix != suffix:
            raise UsageError(f"a file for {format_} ends in {suffix}, got {path}; change --out")
        if path.is_dir():
            raise UsageError(f"{path} is a folder: choose another --out")
        require_writable(path.parent)
        policy = load_policy(run, best, last)
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"Checking the exported policy on {OBSERVATIONS:,} observations …")
        done = export_policy(policy, path, format=format_)
    print(
        f"{done.path}: {policy.config.env}, {done.size:,} bytes, largest error {done.error:.1e} on"
        f" {OBSERVATIONS:,} observations"
    )
    for more in done.files[1:]:
        print(f"{more}: runs it with NumPy alone")
    return 0
