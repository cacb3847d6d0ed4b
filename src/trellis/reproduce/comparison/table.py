"""The results of a comparison: a JSON and a figure per task, tables over all tasks, a README.

A task's JSON holds all that is known about it. Methods that are run later are added, and those that
are run again are replaced, never by fewer or smaller runs. Everything else is made from the JSON
files in the folder, so tasks can be run one at a time and are still read together.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trellis.analysis.statistics import interval_text
from trellis.reproduce import files
from trellis.reproduce.comparison import figure
from trellis.reproduce.comparison.claims import NOT_MEASURED, SOLVED, claims
from trellis.reproduce.comparison.plans import METHODS, TASKS, Method
from trellis.reproduce.files import Record
from trellis.runs.folder import locked

SCORES = (
    *("task", "method", "setting", "value", "scale", "seeds", "mean_return", "low_95", "high_95"),
    *("mean_velocity", "median_length", "mean_minutes", "paper_minutes"),
)
"""The columns of scores.csv.

`setting` was swept and got this `value`. `scale` is the steps of an iteration as a part of the
paper's. `mean_return` is that of the final policies in 20 episodes each without noise, with
Student's interval over seeds. `mean_velocity` is in m/s. `median_length` is the median over seeds
of the median over episodes. `mean_minutes` is the time in iterations, without evaluations;
`paper_minutes` is from Table 2.
"""
RUNS = (
    *("task", "method", "role", "value", "seed", "run", "iterations", "steps", "minutes"),
    *("threads", "training_return", "mean_return", "std_return", "median_length", "mean_velocity"),
)
"""The columns of runs.csv; role is compared or swept."""
LOCK_SECONDS = 300.0
"""Time for another command to write its results."""
BY_METHOD = ("methods", "sweeps", "videos")
"""Parts of a task's JSON that have an entry per method."""


def refuse_less(out: Path, task: str, method: Method, scale: float, seeds: int) -> None:
    """Raise if the folder has more of a method than what would replace it."""
    record = read_tasks(out).get(task, {}).get("methods", {}).get(method.name)
    if record and (scale < record["scale"] or seeds < len(record["runs"])):
        raise files.ResultsError(
            f"{out / task}.json has {method.name} with {len(record['runs'])} seeds at scale"
            f" {record['scale']:g}, which {seeds} at scale {scale:g} would replace: write to"
            " another folder with --out, or move it away"
        )


def write_task(out: Path, name: str, task: Record) -> None:
    """Write a task's results beside those of other methods, and all that follows from them."""
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, LOCK_SECONDS):
        files.write_json(out / f"{name}.json", merged(read_tasks(out).get(name, {}), task))
        refresh(out)


def merged(before: Record, task: Record) -> dict[str, Any]:
    """Return a task's results with those of the methods that were not run again."""
    result = dict(task)
    for part in BY_METHOD:
        # A sweep or a video of runs that are replaced says nothing about the new ones.
        kept = {k: v for k, v in before.get(part, {}).items() if k not in task["methods"]}
        found = {**kept, **task[part]}
        result[part] = {method: found[method] for method in METHODS if method in found}
    return result


def read_tasks(out: Path) -> dict[str, Any]:
    """Return the results of all tasks in a folder, in the paper's order."""
    found = {name: files.read_json(out / f"{name}.json") for name in TASKS}
    return {name: task for name, task in found.items() if task}


def refresh(out: Path) -> None:
    """Write figures, tables, claims and README again, from the JSON of the tasks alone."""
    tasks = read_tasks(out)
    for name, task in tasks.items():
        figure.plot(name, task, out / f"{name}.png")
    files.write_csv(out / "scores.csv", SCORES, _score_rows(tasks))
    files.write_csv(out / "runs.csv", RUNS, _run_rows(tasks))
    found = claims(tasks)
    files.write_json(out / "claims.json", {"solved_means": SOLVED, "claims": found})
    (out / "README.md").write_text(_readme(tasks, found), encoding="utf-8")


def _score_rows(tasks: Record) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for method, record in task["methods"].items():
            low, high = record["interval_95"]
            yield {
                **record,
                **(record["swept"] or {}),
                **{"task": name, "method": method, "seeds": len(record["runs"])},
                **{"low_95": low, "high_95": high},
            }


def _run_rows(tasks: Record) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for part, role in (("methods", "compared"), ("sweeps", "swept")):
            for method, record in task[part].items():
                value = (record.get("swept") or {}).get("value")
                for run in record["runs"]:
                    yield {"value": value, **run, "task": name, "method": method, "role": role}


def _readme(tasks: Record, found: Iterable[Record]) -> str:
    """Return the page that a person reads first; every number is from the JSON."""
    lines = ["# The comparison of Section 8.1", ""]
    lines += ["Written by `trellis reproduce`; docs/comparison.md says what each file holds.", ""]
    for name, task in tasks.items():
        records = task["methods"].values()
        makers = files.maker_lines((record["label"], record) for record in records)
        cells = ([text(record) for text in TABLE.values()] for record in records)
        table = files.markdown_table(tuple(TABLE), cells)
        lines += [f"## {name}", "", *makers, f"![{name}]({name}.png)", "", *table, ""]
        for method, sweep in task["sweeps"].items():
            tried = ", ".join(
                f"{run['value']:g}: {files.cell(run['training_return'], '.0f')}"
                for run in sweep["runs"]
            )
            edge = " (at the edge of the sweep)" if sweep["chosen_is_at_the_edge"] else ""
            lines += [
                f"Sweep of {method}, {sweep['setting']}: return at the end of training {tried}."
                f" Chosen: {sweep['chosen']:g}{edge}.",
                "",
            ]
        for method, video in task["videos"].items():
            lines += [f"[Video of {method}]({video})", ""]
    verdicts = [(c["section"], c["paper"], c["found"], _verdict(c)) for c in found]
    lines += ["## The paper's claims", ""]
    lines += files.markdown_table(("Sec.", "the paper", "found here", "holds"), verdicts)
    lines += ["", "Solved means:", ""]
    lines += [f"- {name}: {words}" for name, words in SOLVED.items() if name in tasks]
    return "\n".join(lines) + "\n"


TABLE: dict[str, Callable[[Record], str]] = {
    "method": lambda record: figure.label(record).rpartition(" (")[0],
    "scale": lambda record: f"{record['scale']:g}",
    "seeds": lambda record: str(len(record["runs"])),
    "return": lambda record: f"{record['mean_return']:.1f}",
    "95% interval": lambda record: interval_text(*record["interval_95"]),
    "m/s": lambda record: files.cell(record.get("mean_velocity"), ".2f"),
    "median episode": lambda record: files.cell(record.get("median_length"), ".0f"),
    "minutes": lambda record: f"{record['mean_minutes']:.1f}",
    "the paper's": lambda record: files.cell(record["paper_minutes"], "g"),
}
"""The columns of a task's table in the README."""


def _verdict(claim: Record) -> str:
    open_ = "-" if claim["found"] == NOT_MEASURED else "open"
    word = {True: "yes", False: "no", None: open_}[claim["holds"]]
    missing = claim["missing"]
    return f"{word}, as far as it was run; not run: {'; '.join(missing)}" if missing else word
