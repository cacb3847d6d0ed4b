"""What TRPO's parts are worth, one at a time, on the swimmer: `trellis reproduce ablations`.

The parts can be run one at a time: later ones are added to those in the folder, and a claim of the
paper is judged as soon as all parts that it is about are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.reproduce import files
from trellis.reproduce.ablations import figure
from trellis.reproduce.ablations.claims import claims
from trellis.reproduce.ablations.plans import PARTS, TASK, VARIATIONS, Variation
from trellis.reproduce.ablations.scores import variation_record
from trellis.reproduce.comparison import plans as comparison
from trellis.reproduce.comparison.plans import METHODS
from trellis.reproduce.experiment import TrainingExperiment, command, look_up, require_scale
from trellis.reproduce.files import Record
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.runs.folder import locked

JSON = "ablations.json"
LOCK_SECONDS = 60.0
"""Time for another command to write its results."""


@dataclass(frozen=True)
class Ablations(TrainingExperiment):
    """What the parts of TRPO are worth, on the swimmer."""

    name: ClassVar = "ablations"
    out: Path = Path("results/ablations")
    seeds: int = 3
    runs: Path = Path("runs/ablations")
    parts: tuple[str, ...] = PARTS
    """Parts to vary. Those that are run later are added to the results."""
    scale: float = 1.0
    """Size of an iteration as a part of the paper's; their number stays."""

    def __post_init__(self):
        super().__post_init__()
        require_scale(self.scale)
        look_up(dict.fromkeys(PARTS), self.parts, "part")

    def run(self, say: Say) -> dict[str, Any]:
        """Train what is missing, and write ablations.json, ablations.csv and ablations.png."""
        self._kept()  # Refuses before anything is run.
        planned = [(v, self.plans(v)) for v in VARIATIONS if v.group in self.parts]
        once = {plan.folder: plan for _, of in planned for plan in of}
        execute(list(once.values()), self.parallel, say)
        maker = files.made_by(command(self))
        found = [{**variation_record(variation, of), **maker} for variation, of in planned]
        self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out, LOCK_SECONDS):
            kept = self._kept()  # With what was added meanwhile.
            rows = sorted((*kept, *found), key=lambda row: PARTS.index(row["group"]))
            results = {
                "env": TASK.env,
                "scale": self.scale,
                "iterations": comparison.ITERATIONS,
                "rows": rows,
                "claims": claims(rows),
            }
            files.write_json(self.out / JSON, results)
            write_table(rows, self.out / "ablations.csv")
            figure.plot(results, self.out / "ablations.png")
        return results

    def plans(self, variation: Variation) -> list[RunPlan]:
        """Return a run per seed; those of the comparison where nothing is varied."""
        method = METHODS["kl-penalty" if variation.group == "penalty" else "trpo"]
        config = comparison.settings(TASK, method, self.scale, **variation.changes)
        runs, name = self.runs, variation.name
        if not variation.changes:
            runs, name = self.runs.parent / "comparison", method.name
        stem = runs / comparison.folder(TASK, self.scale) / name
        return self.plan_seeds(stem, config, range(self.seeds))

    def _kept(self) -> list[dict[str, Any]]:
        """Return the rows of other parts that the folder has from before.

        Raises:
            ResultsError: If the folder has more of these parts than what would replace it.
        """
        path = self.out / JSON
        before = files.read_json(path) or {"scale": self.scale, "rows": []}
        if before["scale"] != self.scale:
            raise files.ResultsError(
                f"{path} has ablations at scale {before['scale']:g}, not {self.scale:g}: write"
                " these to another folder with --out, or move it away"
            )
        replaced = [row for row in before["rows"] if row["group"] in self.parts]
        most = max((len(row["runs"]) for row in replaced), default=0)
        if self.seeds < most:
            raise files.ResultsError(
                f"{path} has {most} seeds, which {self.seeds} would replace: write to another"
                " folder with --out, or move it away"
            )
        return [row for row in before["rows"] if row not in replaced]


def write_table(rows: Sequence[Record], path: Path) -> None:
    """Write a line per run."""
    columns = ["group", "asked", "value", *rows[0]["runs"][0]]
    files.write_csv(path, columns, ({**row, **run} for row in rows for run in row["runs"]))
