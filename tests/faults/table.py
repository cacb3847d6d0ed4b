"""Make docs/reference/faults.md: `python -m tests.faults.table`, after `make test-faults`.

The page is made of the counts in `build/faults/`, which the last run of the suite has written.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.faults.counts import FOLDER

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "faults.md"
HEAD = """# Fault suite

`make test-faults` tries every fault of this table and writes this page.
A sample of each class is part of `make test`. [Trust](trust.md) explains what is protected.

"Tried" counts trials. A trial holds if every check of its class passes:

- **Payloads** are malicious run folders. Each is opened by `eval`, `record`, `resume`, `plot`,
  `compare`, `improvement`, `report`, `export`, `share`, `pretrained`, `train --config`,
  `tune --config`, `TRPO.load` and `SavedPolicy.load`. No code of the folder runs, and no
  file outside changes. A trial takes less than 5 seconds and 512 MB. It ends with one line and exit
  code 2, with a warning while the rest is used, or without any use of the payload.
- **Memory** is measured in a process of its own, for the large payloads.
- **Damage** is one changed byte, or a file that is cut short. It is noticed, or the content that
  was read is the same.
- **Saving** is interrupted: the process is killed, or there is no space. The folder holds the old
  state or the new one, whole.
- **Fuzzing** generates content. The reader returns a value or raises an expected error.
- **Misbehaving environments** raise, hang, exit, fork or return wrong values. The command trains as
  without the fault, or ends with one line that names the environment, the step and the seed. It
  leaves no process, thread, descriptor or shared memory behind.
- **Signals** arrive at chosen moments: set-up, saving, evaluation, every part of an iteration, and
  with workers, Atari and Ray. The command ends with its exit code and leaves no process. The run
  then resumes to the bytes of a run without a signal.
- **Kill −9** strikes at ten moments of each kind of run that claims exact resume. The resumed run
  ends with the same bytes as a run that was not killed.
- **Two processes, lost folders:** one process trains, and the other one is refused. A folder that
  disappears or becomes read-only ends the run with one line.
- **Degenerate mathematics** are constant observations, no advantage, one action, and rewards near
  the limits of numbers. Parameters stay finite, or one error says what is wrong.
- **Ray** listens on loopback only and asks for a token. Open clusters are joined with a warning.

"""


def read_counts() -> tuple[Counter[str], Counter[str]]:
    """Return the trials and the trials that held, by class."""
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for path in sorted(FOLDER.glob("*.json")):
        for kind, (all_of_them, good) in json.loads(path.read_text()).items():
            tried[kind] += all_of_them
            held[kind] += good
    return tried, held


def main() -> int:
    """Write the page; return 1 if there are no counts."""
    tried, held = read_counts()
    if not tried:
        print(f"there are no counts in {FOLDER}: run `make test-faults`", file=sys.stderr)
        return 1
    lines = ["| class | tried | held |", "|---|---:|---:|"]
    lines += [f"| {kind} | {tried[kind]:,} | {held[kind]:,} |" for kind in sorted(tried)]
    lines.append(f"| all | {tried.total():,} | {held.total():,} |")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
