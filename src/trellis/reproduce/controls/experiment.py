"""Vine's controls on the hopper: `trellis reproduce vine-controls`.

Every control is data in `plans.py`. Finished ones are skipped, and each result is written as soon
as its run is over, so the experiment can stop at any time.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.policies.saved import SavedPolicy
from trellis.reproduce import files
from trellis.reproduce.comparison import gait
from trellis.reproduce.comparison.kept_logs import keep, write_logs
from trellis.reproduce.controls import page
from trellis.reproduce.controls.plans import BY_NAME, TASK, Control
from trellis.reproduce.controls.scores import control_record
from trellis.reproduce.experiment import Experiment, command, look_up, require_scale
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.runs.run import closing, resume, train_from
from trellis.training.trainer import Trainer


@dataclass(frozen=True)
class VineControls(Experiment):
    """Why vine falls on the hopper: one run per possible cause (Sec. 8.1)."""

    name: ClassVar = "vine-controls"
    out: Path = Path("results/controls")
    runs: Path = Path("runs/controls")
    """Folder for the runs."""
    controls: tuple[str, ...] = tuple(BY_NAME)
    """Controls to run, in this order. A control that starts from another one first trains that one
    if its run folder is missing."""
    scale: float = 1.0
    """Steps per iteration of vine as a part of the paper's, in (0, 1]."""
    single_scale: float = 0.1
    """Steps per iteration of single path as a part of the paper's, in (0, 1]."""
    iterations: int = 200
    """Iterations of controls that start from a new policy."""

    def __post_init__(self):
        look_up(BY_NAME, self.controls, "control")
        require_scale(self.scale)
        require_scale(self.single_scale)
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, got {self.iterations}")

    def run(self, say: Say) -> None:
        """Train the missing runs one after the other, and write each result."""
        self._results()  # Raises before any run starts.
        kept = {row["name"] for row in self._results()["rows"]}
        for name in self.controls:
            control = BY_NAME[name]
            if name in kept:
                say(f"{name}: kept in {self.out / page.JSON}")
                continue
            plan = self.plan(control)
            say(f"Control {name}: {control.change}")
            if control.start is None:
                execute([plan], 1, say)
            elif not plan.finished:
                self._continue(plan, self.plan(BY_NAME[control.start]), say)
            write_logs(self.out, TASK.name, name, [keep(plan, "compared")])
            played = gait.evaluate(plan.folder)
            record = control_record(control, plan.rows, played)
            results = self._results()
            rows = [*results["rows"], {**record, **files.made_by(command(self, controls=(name,)))}]
            order = list(BY_NAME)
            results["rows"] = sorted(rows, key=lambda row: order.index(row["name"]))
            files.write_json(self.out / page.JSON, results)
            page.write(self.out)

    def write_pages(self) -> None:
        """Write the page from controls.json."""
        page.write(self.out)

    def plan(self, control: Control) -> RunPlan:
        """Return the run of a control."""
        config = control.config(self.scale, self.single_scale, self.iterations)
        return RunPlan(self.runs / control.name, config)

    def _continue(self, plan: RunPlan, source: RunPlan, say: Say) -> None:
        """Train a run that starts from the last policy of another one, which is trained first."""
        if plan.has_started:
            plan.check()
            resume(plan.folder, quiet=True)
            return
        execute([source], 1, say)  # Only its result is kept, so its folder may be lost.
        saved = SavedPolicy.load(source.folder)
        with closing(Trainer(plan.config)) as trainer:
            state = dataclasses.replace(
                trainer.start(), theta=saved.theta, observation_moments=saved.observation_moments
            )
            train_from(trainer, plan.folder, state, plan.config, quiet=True)

    def _results(self) -> dict[str, Any]:
        """Return the results so far.

        Raises:
            ResultsError: They have another size.
        """
        size = {name: getattr(self, name) for name in ("scale", "single_scale", "iterations")}
        found = files.read_json(self.out / page.JSON) or {**size, "rows": []}
        there = {name: found[name] for name in size}
        if there != size:
            raise files.ResultsError(
                f"{self.out / page.JSON} has controls with {there}, not {size}: write to another"
                " folder with --out, or move the file away"
            )
        return found
