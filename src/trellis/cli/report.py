"""`trellis report`: write an HTML report about runs."""

from pathlib import Path
from typing import Annotated

import tyro

from trellis.cli.errors import UsageError, say, usage_errors
from trellis.cli.runs import Runs


def report(
    runs: Runs,
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="FILE", aliases=["-o"])] = Path("report.html"),
    watch: bool = False,
    every: float = 10.0,
) -> int:
    """Write one HTML file about runs that works offline.

    It shows curves, evaluations, the health of policy updates, videos, settings and commands. No
    environment is imported.

    Args:
        out: HTML file to write.
        watch: Whether to write the file again and again until all runs are finished.
        every: Seconds between two versions with --watch.
    """
    with usage_errors():
        from trellis.analysis import report as reports

        if out.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"a report is an .html file, got {out}; change --out")
        if every <= 0:
            raise UsageError(f"every must be > 0, got {every}")
        if watch:
            say(f"Writing {out} every {every:g} s until all runs are finished (Ctrl-C stops) …")
            done = reports.watch(runs, out, seconds=every)
        else:
            done = reports.write_report(runs, out)
    print(f"{done.path}: {done.size / 1e6:.1f} MB; open it in a browser")
    return 0
