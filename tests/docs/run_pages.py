"""Run the blocks of pages: `python -m tests.docs.run_pages [--short] [PAGE ...]`.

Without pages, all of README, Guide and Reference run. --short cuts training and episodes. This is a
process of its own, so that blocks and short cuts change nothing for the other tests.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.docs import metrics
from tests.docs.blocks import ROOT, Runner, shorten, tasks_of


def find_pages() -> list[Path]:
    """Return the pages whose blocks run, relative to the repository."""
    folders = [ROOT / "docs/guide", ROOT / "docs/reference"]
    found = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [Path("README.md"), *(path.relative_to(ROOT) for path in found)]


def run_page(page: Path, folder: Path, *, short: bool) -> None:
    """Run the blocks of a page in an empty folder; raise what fails."""
    runner = Runner(folder, short=short)
    for task in tasks_of(page, (ROOT / page).read_text("utf-8")):
        if task.not_run is None and not (short and task.slow):
            runner.run(task)
    for log in folder.rglob("metrics.jsonl"):
        missing = metrics.logged_in(log) - metrics.described()
        assert not missing, f"docs/reference/metrics.md does not describe {missing}"


@contextlib.contextmanager
def current_folder() -> Iterator[Path]:
    """Yield a new folder that is the current one, and forget the modules imported from it."""
    before, modules = Path.cwd(), set(sys.modules)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None)
                if file and Path(file).resolve().is_relative_to(folder):
                    del sys.modules[name]


def main() -> int:
    """Run pages, and report each of them in a line."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.run_pages")
    parser.add_argument("--short", action="store_true", help="cut training and episodes")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    options = parser.parse_args()
    if options.short:
        shorten()
    failed = False
    for page in options.pages or find_pages():
        started = time.perf_counter()
        try:
            with current_folder() as folder:
                run_page(page, folder, short=options.short)
            result = "passed"
        except BaseException:
            failed, result = True, f"FAILED\n{traceback.format_exc()}"
        print(f"{page} ({time.perf_counter() - started:.1f} s): {result}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
