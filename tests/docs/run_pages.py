"""Run the blocks of pages: `python -m tests.docs.run_pages [--short] [PAGE ...]`.

Without pages, all of README, Guide and Reference run. --short cuts training and episodes. This is a
process of its own, so that blocks and short cuts change nothing for the other tests.
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.docs import metrics
from tests.docs.blocks import ROOT, Runner, shorten, tasks_of
from tests.docs.shell import like_a_process


def find_pages() -> list[Path]:
    """Return the pages whose blocks run, relative to the repository."""
    folders = [ROOT / "docs/guide", ROOT / "docs/reference"]
    found = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [Path("README.md"), *(path.relative_to(ROOT) for path in found)]


def run_page(page: Path, folder: Path, *, short: bool) -> None:
    """Run the blocks of a page in an empty folder; raise what fails."""
    runner = Runner(folder, short=short)
    for task in tasks_of(page, (ROOT / page).read_text("utf-8")):
        if task.missing:
            print(f"{task} is skipped: {', '.join(task.missing)} cannot be imported")
        elif task.not_run is None and not (short and task.slow):
            runner.run(task)
    for log in folder.rglob("metrics.jsonl"):
        missing = metrics.logged_in(log) - metrics.described()
        assert not missing, f"docs/reference/metrics.md does not describe {missing}"


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
            with tempfile.TemporaryDirectory() as name, like_a_process(Path(name)):
                run_page(page, Path(name).resolve(), short=options.short)
            result = "passed"
        except (Exception, SystemExit):
            failed, result = True, f"FAILED\n{traceback.format_exc()}"
        print(f"{page} ({time.perf_counter() - started:.1f} s): {result}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
