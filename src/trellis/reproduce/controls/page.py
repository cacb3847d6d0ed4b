"""The page of the controls: one row each, with the cause that it supports."""

from collections.abc import Sequence
from pathlib import Path

from trellis.reproduce import files, page
from trellis.reproduce.comparison.gait import WALKS_LENGTH, WALKS_VELOCITY
from trellis.reproduce.comparison.kept_logs import FOLDER
from trellis.reproduce.controls.plans import CONTROLS, REFERENCES, SEED
from trellis.reproduce.controls.scores import LONGER, is_gait, verdict
from trellis.reproduce.files import Record
from trellis.reproduce.page import cell

JSON = "controls.json"


def write(out: Path) -> None:
    """Write the page from controls.json."""
    results = files.read_results(out / JSON)
    rows = results["rows"]
    references = {row["name"]: row for row in rows if row["name"] in REFERENCES}
    missing = [c.name for c in CONTROLS if c.name not in {row["name"] for row in rows}]
    lines = [
        "# Why vine falls on the hopper",
        "",
        "The paper's vine, without a critic, runs fast on the hopper and falls early. Each control"
        " removes one possible cause. `trellis reproduce vine-controls` writes this page.",
        "",
        f"One run each, seed {SEED}, {results['iterations']} iterations. Vine has"
        f" {results['scale']:g} of the paper's steps per iteration, single path"
        f" {results['single_scale']:g}. One seed cannot tell small differences from luck.",
        "",
        *page.table(
            ("control", "change", "training episode", "last episode", "m/s", "per step", "cause"),
            [
                (
                    row["name"],
                    row["change"],
                    cell(row["training_length"], ".0f"),
                    cell(row["median_length"], ".0f") + (" (gait)" if is_gait(row) else ""),
                    cell(row["velocity"], ".2f"),
                    cell(row["reward_per_step"], ".2f"),
                    verdict(row, references) or page.BLANK,
                )
                for row in rows
            ],
        ),
        "*Training episode* is the mean length in the last tenth of training, with noise. *Last"
        " episode* is the median of 20 episodes of the last policy, without noise. *Per step* is"
        f" the reward per time step in training. A gait has a median of at least {WALKS_LENGTH}"
        f" steps at {WALKS_VELOCITY} m/s or more.",
        "",
        "A cause is supported if its control has a gait. In controls (a) and (b), which take"
        f" something away, it is supported if training episodes become shorter by a factor of"
        f" {LONGER} or more. It is supported in part if they are at least {LONGER} times as long as"
        " the reference's.",
        "",
        "## Causes",
        "",
        *page.table(("cause", "control", "found"), _causes(rows, references)),
    ]
    if missing:
        lines += ["Not run yet: " + ", ".join(f"`{name}`" for name in missing) + ".", ""]
    lines += page.commands([(row["name"], row) for row in rows])
    logs = sorted(path.name for path in (out / FOLDER).glob("*.jsonl.gz"))
    listed = {f"{FOLDER}/{name}": "Log of a run, as compressed JSON lines." for name in logs}
    page.write(out, lines, {JSON: "All numbers.", **listed})


def _causes(rows: Sequence[Record], references: dict[str, Record]) -> list[tuple[str, str, str]]:
    return [
        (row["cause"], row["name"], verdict(row, references))
        for row in rows
        if row["cause"] and verdict(row, references)
    ]
