"""What TRPO's parts are worth, one at a time, on the swimmer: `trellis reproduce ablations`.

Every run is single-path TRPO with the paper's settings but for one: no line search, another number
of CG iterations, another part of the data for the Fisher matrix, another δ, or a penalty C in place
of the constraint. The unchanged runs are those of the comparison, which are not run again.

δ is varied by factors of nine and C by factors of three: both change the length of a step, which
goes with √δ and 1/C, by factors of three.

The parts can be run one at a time: rows of later ones are added to those in the folder, and what
the paper says of a part is judged as soon as all that it speaks of is there.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis.compare import training_return
from trellis.analysis.statistics import mean_interval
from trellis.cli.messages import UsageError
from trellis.optimization.fisher import MIN_SAMPLES
from trellis.presets.paper import PAPER_MAX_KL
from trellis.reproduce.ablations import figure as ablations_figure
from trellis.reproduce.ablations.claims import claims, largest_fall
from trellis.reproduce.comparison import plans as comparison_runs
from trellis.reproduce.comparison.plans import METHODS, TASKS, Scale
from trellis.reproduce.comparison.results import curve, returns, steps
from trellis.reproduce.record import as_text
from trellis.reproduce.sweep import RunPlan, execute
from trellis.runs.folder import locked, write_whole
from trellis.runs.log import read_metrics
from trellis.runs.provenance import commit

RUNS = Path("runs/ablations")
TASK = TASKS["swimmer"]
DELTA = PAPER_MAX_KL


@dataclass(frozen=True)
class Variation:
    """What is different, and by how much."""

    group: str
    value: float
    options: tuple[str, ...]
    """Of `trellis train`; none for the unchanged method."""

    @property
    def name(self) -> str:
        """Of its runs."""
        return f"{self.group}-{self.value:g}"


def _varied(
    group: str, option: str, values: Sequence[float], unchanged: float | None
) -> Iterator[Variation]:
    for value in values:
        options = () if value == unchanged else (option, f"{value:g}")
        yield Variation(group, value, options)


DELTAS = [float(f"{DELTA * 9.0**power:.3g}") for power in range(-2, 3)]
PENALTIES = [float(f"{3.0**power:.3g}") for power in range(-2, 3)]
WITHOUT = ("--step.no-line-search",)
VARIATIONS = (
    # Values of δ without a line search, beside the same with it from max-kl below.
    Variation("no-line-search", DELTA, WITHOUT),
    Variation("no-line-search", DELTAS[3], (*WITHOUT, "--max-kl", f"{DELTAS[3]:g}")),
    *_varied("cg-iterations", "--step.cg-iterations", (1, 2, 5, 10, 20, 40), 10),
    *_varied("fisher-fraction", "--step.fisher-fraction", (0.01, 0.03, 0.1, 0.3, 1.0), 0.1),
    *_varied("max-kl", "--max-kl", DELTAS, DELTA),
    *_varied("penalty", "--step.penalty", PENALTIES, None),
)
PARTS = tuple(dict.fromkeys(variation.group for variation in VARIATIONS))


def plans(
    variation: Variation, seeds: int, scale: float, runs: Path, parallel: int
) -> list[RunPlan]:
    """A run a seed; those of the comparison where nothing is varied."""
    threads = 1 if parallel > 1 else 0
    base = comparison_runs.seed_plans(
        *(TASK, METHODS["trpo"], seeds, Scale(scale)),
        runs=runs.parent / "comparison",
        threads=threads,
    )
    if not variation.options:
        return base
    method = METHODS["kl-penalty" if variation.group == "penalty" else "trpo"]
    settings = comparison_runs.settings(TASK, method, scale)
    options = (*settings, "--threads", str(threads), *variation.options)
    folder = comparison_runs.folder(TASK, scale, runs)
    return [
        RunPlan(folder / f"{variation.name}-{plan.seed}", TASK.env, plan.seed, options)
        for plan in base
    ]


def chosen(parts: Sequence[str]) -> list[Variation]:
    """The variations of these parts, all without any; raises in words where there is no such."""
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    return [variation for variation in VARIATIONS if not parts or variation.group in parts]


def run(
    out: Path,
    variations: Sequence[Variation],
    seeds: int,
    scale: float,
    parallel: int,
    say: Callable[[str], None],
    *,
    runs: Path = RUNS,
) -> dict[str, Any]:
    """Trains what is missing, and writes ablations.json, ablations.csv and ablations.png."""
    _kept(out, variations, seeds, scale)  # Refused before anything is run.
    by_variation = {v: plans(v, seeds, scale, runs, parallel) for v in variations}
    wanted = {plan.folder: plan for of in by_variation.values() for plan in of}
    execute(list(wanted.values()), parallel, say)
    parts = dict.fromkeys(variation.group for variation in variations)
    words = "" if len(parts) == len(PARTS) else f"--parts {' '.join(parts)} "
    made_by = {
        "command": f"trellis reproduce ablations {words}--seeds {seeds} --scale {scale:g}"
        f" --parallel {parallel} --out {out}",
        "commit": commit(),
    }
    found = [{**_row(variation, of), **made_by} for variation, of in by_variation.items()]
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, seconds=60):
        kept = _kept(out, variations, seeds, scale)  # With what was added meanwhile.
        rows = sorted((*kept, *found), key=lambda row: PARTS.index(row["group"]))
        results = {
            "env": TASK.env,
            "scale": scale,
            "iterations": comparison_runs.ITERATIONS,
            "rows": rows,
            "claims": claims(rows),
        }
        text = as_text(results)
        write_whole(out / "ablations.json", text)
        _write_table(rows, out / "ablations.csv")
        ablations_figure.draw(json.loads(text), out / "ablations.png")
    return results


def _kept(
    out: Path, variations: Sequence[Variation], seeds: int, scale: float
) -> list[dict[str, Any]]:
    """The rows of other parts that the folder has from before; raises where it has more of these
    parts than what would replace it."""
    path = out / "ablations.json"
    parts = {variation.group for variation in variations}
    if not path.is_file():
        return []
    try:
        before = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} cannot be read ({error}): move it away") from error
    if before["scale"] != scale:
        raise UsageError(
            f"{path} has ablations at scale {before['scale']:g}, not {scale:g}: write these to"
            " another folder with --out, or move it away"
        )
    replaced = [row for row in before["rows"] if row["group"] in parts]
    most = max((len(row["runs"]) for row in replaced), default=0)
    if seeds < most:
        raise UsageError(
            f"{path} has {most} seeds, which {seeds} would replace: write to another folder with"
            " --out, or move it away"
        )
    return [row for row in before["rows"] if row not in replaced]


def _row(variation: Variation, plans: Sequence[RunPlan]) -> dict[str, Any]:
    """One variation: its runs, and the means over them."""
    logs = [read_metrics(plan.folder) for plan in plans]
    samples = plans[0].config.sampling.batch_size
    value = variation.value
    if variation.group == "fisher-fraction":
        # What is computed on, where the fraction asked for is less than the least.
        value = max(value, min(1.0, MIN_SAMPLES / samples))
    measured = [_run(plan, rows) for plan, rows in zip(plans, logs, strict=True)]
    return {
        "group": variation.group,
        "asked": variation.value,
        "value": value,
        "is_the_paper": not variation.options,
        "final_return": _interval([run["final_return"] for run in measured]),
        "mean_return": _interval([run["mean_return"] for run in measured]),
        "runs": measured,
        "curve": curve(logs, steps, returns),
    }


def _run(plan: RunPlan, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    seen = returns(rows)
    return {
        "run": plan.folder.name,
        "seed": plan.seed,
        "final_return": training_return(rows),
        "mean_return": float(np.nanmean(seen)),
        "first_return": float(seen[np.isfinite(seen)][0]),
        "largest_kl": max(row.get("kl") or 0.0 for row in rows),
        "largest_fall": largest_fall(seen),
        "refused_steps": sum(row.get("status") != "accepted" for row in rows),
        "seconds_update": float(np.median([row["seconds_update"] for row in rows])),
        "seconds_sampling": float(np.median([row["seconds_sampling"] for row in rows])),
    }


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    return {k: None if np.isnan(v) else v for k, v in mean_interval(values)._asdict().items()}


def _write_table(rows: Sequence[dict[str, Any]], path: Path) -> None:
    columns = ["group", "asked", "value", *rows[0]["runs"][0]]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerows({**row, **measured} for measured in row["runs"])
