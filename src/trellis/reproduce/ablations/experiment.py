"""Ablations of TRPO on one of the paper's tasks: `trellis reproduce ablations`.

The parts can be run one at a time. Later results are added to those in the folder, and a claim of
the paper is judged once all its parts are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.reproduce import files
from trellis.reproduce.ablations import figure, page
from trellis.reproduce.ablations.claims import claims
from trellis.reproduce.ablations.page import JSON
from trellis.reproduce.ablations.plans import PARTS, VARIATIONS, Variation
from trellis.reproduce.ablations.scores import variation_record
from trellis.reproduce.comparison import plans as comparison
from trellis.reproduce.comparison.kept_logs import Role
from trellis.reproduce.comparison.kept_runs import (
    all_logs,
    as_kept,
    finish_method,
    keep_run,
    log_of,
)
from trellis.reproduce.comparison.plans import METHODS, TASKS
from trellis.reproduce.experiment import TrainingExperiment, command, look_up, require_scale
from trellis.reproduce.files import Record
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.runs.folder import locked

LOCK_SECONDS = 60.0
"""Longest time to wait for another command that writes results."""
ROLE: Role = "swept"
"""Role of the kept logs: their last policies are not evaluated."""


@dataclass(frozen=True)
class Ablations(TrainingExperiment):
    """Ablations of TRPO: one part is changed at a time (Sec. 6, App. C)."""

    name: ClassVar = "ablations"
    out: Path = Path("results/ablations")
    seeds: int = 3
    runs: Path = Path("runs/ablations")
    parts: tuple[str, ...] = PARTS
    """Parts to change. Later commands add their parts to the results."""
    task: str = "swimmer"
    """Task to train on: cartpole, swimmer, hopper or walker. Write each to its own --out."""
    scale: float = 1.0
    """Steps per iteration as a part of the paper's, in (0, 1]. The number of iterations stays."""

    def __post_init__(self):
        super().__post_init__()
        require_scale(self.scale)
        look_up(dict.fromkeys(PARTS), self.parts, "part")
        look_up(TASKS, (self.task,), "task")

    def run(self, say: Say) -> dict[str, Any]:
        """Train the missing runs, and write the data files, the figure and the page."""
        self._kept()  # Raises before any run starts.
        planned = [(v, self.plans(v)) for v in VARIATIONS if v.group in self.parts]
        once = {plan.folder: (plan, _stem(v)) for v, of in planned for plan in of}

        def keep_ended(plan: RunPlan) -> None:
            keep_run(self.out, self.task, once[plan.folder][1], log_of(plan, ROLE, None))

        execute([plan for plan, _ in once.values()], self.parallel, say, keep_ended)
        for variation, of in planned:
            logs = [log_of(plan, ROLE, None) for plan in of]
            finish_method(self.out, self.task, _stem(variation), logs)
        maker = files.made_by(command(self))
        found = [{**variation_record(variation, of), **maker} for variation, of in planned]
        self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out, LOCK_SECONDS):
            kept = self._kept()  # Another command may have added some.
            rows = sorted((*kept, *found), key=lambda row: PARTS.index(row["group"]))
            results = {
                "env": TASKS[self.task].env,
                "task": self.task,
                "scale": self.scale,
                "iterations": comparison.ITERATIONS,
                "rows": rows,
                "claims": claims(rows),
            }
            files.write_json(self.out / JSON, results)
            write_table(rows, self.out / "ablations.csv")
            self._write_page(results)
        return results

    def write_pages(self) -> None:
        """Write the verdicts, the figure and the page again from ablations.json."""
        results = files.read_results(self.out / JSON)
        results["claims"] = claims(results["rows"])
        files.write_json(self.out / JSON, results)
        self._write_page(results)

    def _write_page(self, results: Record) -> None:
        figure.plot(results, self.out / f"{page.FIGURE}.png")
        # A subfolder holds another scale or task; its results are on the page of its parent.
        in_subfolder = (self.out.parent / JSON).is_file()
        page.write(self.out.parent if in_subfolder else self.out)

    def plans(self, variation: Variation) -> list[RunPlan]:
        """Return one run per seed; unchanged runs are those of the comparison.

        A run whose log is kept in the results is not trained again.
        """
        task = TASKS[self.task]
        method = METHODS["kl-penalty" if variation.group == "penalty" else "trpo"]
        config = comparison.settings(task, method, self.scale, **variation.changes)
        runs = self.runs if variation.changes else self.runs.parent / "comparison"
        name = _stem(variation)
        stem = runs / comparison.folder(task, self.scale) / name
        logs = all_logs(self.out, self.task, name)
        return [
            plan if plan.has_started else as_kept(plan, ROLE, logs)
            for plan in self.plan_seeds(stem, config, range(self.seeds))
        ]

    def _kept(self) -> list[dict[str, Any]]:
        """Return the earlier results of other parts in the folder.

        Raises:
            ResultsError: If new results would replace more seeds or another scale.
        """
        path = self.out / JSON
        before = files.read_json(path) or {"scale": self.scale, "task": self.task, "rows": []}
        there, asked = (before.get("task", "swimmer"), before["scale"]), (self.task, self.scale)
        if there != asked:
            raise files.ResultsError(
                f"{path} has ablations on {there[0]} at scale {there[1]:g}, not on {asked[0]} at"
                f" {asked[1]:g}: write to another folder with --out, or move the file away"
            )
        replaced = [row for row in before["rows"] if row["group"] in self.parts]
        most = max((len(row["runs"]) for row in replaced), default=0)
        if self.seeds < most:
            raise files.ResultsError(
                f"{path} has {most} seeds; {self.seeds} would replace them. Write to another folder"
                " with --out, or move the file away"
            )
        return [row for row in before["rows"] if row not in replaced]


def _stem(variation: Variation) -> str:
    """Return the name of a variation's runs without their seed."""
    return variation.name if variation.changes else "trpo"


def write_table(rows: Sequence[Record], path: Path) -> None:
    """Write one row per run."""
    columns = ["group", "asked", "value", *rows[0]["runs"][0]]
    files.write_csv(path, columns, ({**row, **run} for row in rows for run in row["runs"]))
