"""The files of a comparison: a JSON and a figure a task, tables over all tasks, and a README.

A task's JSON holds all that is known about it: methods that are run later are added, and those that
are run again replaced, never by fewer or smaller runs. Everything else is made from the JSON files
that are in the folder, so tasks, too, can be run one at a time, and all are read together.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trellis.cli.messages import UsageError
from trellis.reproduce.comparison import figure as comparison_figure
from trellis.reproduce.comparison.claims import NOT_MEASURED, SOLVED, claims
from trellis.reproduce.comparison.plans import METHODS, TASKS, Method
from trellis.reproduce.record import as_text
from trellis.runs.folder import locked, write_whole

SCORES = {
    "task": "task",
    "method": "method",
    "setting": "the setting that was swept",
    "value": "its value",
    "scale": "steps of an iteration, as a part of the paper's",
    "seeds": "runs",
    "mean_return": "of the final policies, 20 episodes each, without noise",
    "low_95": "Student's interval over seeds",
    "high_95": "its upper end",
    "mean_velocity": "m/s forward",
    "median_length": "steps of an episode: the median over seeds of the median over episodes",
    "mean_minutes": "in iterations, without evaluations",
    "paper_minutes": "Table 2",
}
"""The columns of scores.csv and what they mean."""
RUNS = (
    *("task", "method", "role", "value", "seed", "run", "iterations", "steps", "minutes"),
    *("threads", "training_return", "mean_return", "std_return", "median_length", "mean_velocity"),
)
"""The columns of runs.csv; role is compared or swept."""
LOCK_SECONDS = 300.0
"""For another command to draw what it has found."""
BY_METHOD = ("methods", "sweeps", "videos")
"""The parts of a task's JSON that have an entry for each method."""


def refuse_less(out: Path, task: str, method: Method, scale: float, seeds: int) -> None:
    """Raises where a folder has more of a method than what is asked for, which would replace it."""
    record = read_tasks(out).get(task, {}).get("methods", {}).get(method.name)
    if record and (scale < record["scale"] or seeds < len(record["runs"])):
        raise UsageError(
            f"{out / task}.json has {method.name} with {len(record['runs'])} seeds at scale"
            f" {record['scale']:g}, which {seeds} at scale {scale:g} would replace: write to"
            " another folder with --out, or move it away"
        )


def write_task(out: Path, name: str, task: Mapping[str, Any]) -> None:
    """A task's results, beside those of other methods, and all that follows from them."""
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, LOCK_SECONDS):
        _write_task(out, name, task)
        refresh(out)


def _write_task(out: Path, name: str, task: Mapping[str, Any]) -> None:
    before = read_tasks(out).get(name, {})
    by_method = {
        part: {
            # A sweep or a film of runs that are replaced says nothing about the new ones.
            **{k: v for k, v in before.get(part, {}).items() if k not in task["methods"]},
            **task[part],
        }
        for part in BY_METHOD
    }
    task = {
        **task,
        **{
            part: {method: found[method] for method in METHODS if method in found}
            for part, found in by_method.items()
        },
    }
    write_whole(out / f"{name}.json", as_text(task))  # It may have days of training in it.


def read_tasks(out: Path) -> dict[str, Any]:
    """The results of all tasks in a folder, in the paper's order."""
    paths = {name: out / f"{name}.json" for name in TASKS}
    return {n: _read_task(p) for n, p in paths.items() if p.is_file()}


def _read_task(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): move it away") from error


def refresh(out: Path) -> None:
    """Figures, tables, claims and README again, from the JSON of the tasks alone."""
    tasks = read_tasks(out)
    for name, task in tasks.items():
        comparison_figure.draw(name, task, task["iterations"], out / f"{name}.png")
    _write_csv(out / "scores.csv", tuple(SCORES), _score_rows(tasks))
    _write_csv(out / "runs.csv", RUNS, _run_rows(tasks))
    found = claims(tasks)
    record = {"solved_means": SOLVED, "claims": found}
    (out / "claims.json").write_text(as_text(record), encoding="utf-8")
    (out / "README.md").write_text(_readme(tasks, found), encoding="utf-8")


def _score_rows(tasks: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for method, record in task["methods"].items():
            swept = record["swept"] or {}
            low, high = record["interval_95"]
            yield {
                **record,
                "task": name,
                "method": method,
                "setting": swept.get("setting"),
                "value": swept.get("value"),
                "seeds": len(record["runs"]),
                "low_95": low,
                "high_95": high,
            }


def _run_rows(tasks: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name, task in tasks.items():
        for method, record in task["methods"].items():
            value = (record["swept"] or {}).get("value")
            for run in record["runs"]:
                yield {**run, "task": name, "method": method, "role": "compared", "value": value}
        for method, sweep in task["sweeps"].items():
            for run in sweep["runs"]:
                yield {**run, "task": name, "method": method, "role": "swept"}


def _write_csv(path: Path, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _readme(tasks: Mapping[str, Any], found: Iterable[Mapping[str, Any]]) -> str:
    """What a person reads first; every number from the JSON."""
    lines = ["# The comparison of Section 8.1", ""]
    lines += ["Written by `trellis reproduce`; docs/comparison.md says what each file holds.", ""]
    for name, task in tasks.items():
        lines += [f"## {name}", "", *_commands(task)]
        lines += [f"![{name}]({name}.png)", "", *_table(task), ""]
        for method, sweep in task["sweeps"].items():
            tried = ", ".join(
                f"{run['value']:g}: {_cell(run['training_return'], '.0f')}" for run in sweep["runs"]
            )
            edge = " (at the edge of the sweep)" if sweep["chosen_is_at_the_edge"] else ""
            lines += [
                f"Sweep of {method}, {sweep['setting']}: return at the end of training {tried}."
                f" Chosen: {sweep['chosen']:g}{edge}.",
                "",
            ]
        for method, video in task["videos"].items():
            lines += [f"[Video of {method}]({video})", ""]
    lines += ["## The paper's claims", "", "| Sec. | the paper | found here | holds |"]
    lines += ["|---|---|---|---|"]
    lines += [f"| {c['section']} | {c['paper']} | {c['found']} | {_verdict(c)} |" for c in found]
    lines += ["", "Solved means:", ""]
    lines += [f"- {name}: {words}" for name, words in SOLVED.items() if name in tasks]
    return "\n".join(lines) + "\n"


def _commands(task: Mapping[str, Any]) -> list[str]:
    """What made the results of which methods."""
    made: dict[tuple[str, str], list[str]] = {}
    for record in task["methods"].values():
        made.setdefault((record["command"], record["commit"]), []).append(record["label"])
    lines = []
    for (command, commit), labels in made.items():
        what = f" ({'; '.join(labels)})" if len(made) > 1 else ""
        lines += [f"`{command}`, reported by commit {commit}{what}.", ""]
    return lines


def _table(task: Mapping[str, Any]) -> list[str]:
    lines = [
        "| method | scale | seeds | return | 95% interval | m/s | median episode | minutes"
        " | the paper's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in task["methods"].values():
        low, high = record["interval_95"]
        cells = [
            comparison_figure.label(record).rpartition(" (")[0],
            f"{record['scale']:g}",
            str(len(record["runs"])),
            f"{record['mean_return']:.1f}",
            "-" if low is None else f"{low:.1f} to {high:.1f}",
            _cell(record.get("mean_velocity"), ".2f"),
            _cell(record.get("median_length"), ".0f"),
            f"{record['mean_minutes']:.1f}",
            _cell(record["paper_minutes"], "g"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _verdict(claim: Mapping[str, Any]) -> str:
    open_ = "-" if claim["found"] == NOT_MEASURED else "open"
    word = {True: "yes", False: "no", None: open_}[claim["holds"]]
    missing = claim["missing"]
    return f"{word}, as far as it was run; not run: {'; '.join(missing)}" if missing else word
