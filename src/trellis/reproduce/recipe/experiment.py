"""What moves the interquartile mean over tasks: `trellis reproduce recipe`.

Every candidate changes the presets of all tasks in one way. Seeds start at 100, which no reported
run uses. Finished runs are kept as a line in `results/recipe/runs`, so the study can be spread over
days and machines; `--report-only` writes the page from what is there.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trellis import presets
from trellis.config.changes import changed
from trellis.reproduce.experiment import TrainingExperiment, look_up, maker
from trellis.reproduce.files import Record
from trellis.reproduce.kept_runs import KeptRuns
from trellis.reproduce.recipe import page
from trellis.reproduce.recipe.candidates import BASELINE, CANDIDATES, Candidate
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say

FIRST_SEED = 100
EPISODES = 20
"""Number of episodes that every final policy plays."""
GOALS = {
    "Hopper-v5": 3_620.0,
    "Walker2d-v5": 4_940.0,
    "Swimmer-v5": 360.0,
    "HalfCheetah-v5": 6_000.0,
    "InvertedDoublePendulum-v5": 9_300.0,
    "Ant-v5": 4_000.0,
}
"""Tasks, and the return that counts as a score of 1."""


@dataclass(frozen=True)
class Recipe(TrainingExperiment):
    """What moves the interquartile mean over tasks: one change of the presets at a time."""

    name: ClassVar = "recipe"
    out: Path = Path("results/recipe")
    seeds: int = 2
    runs: Path = Path("runs/recipe")
    parallel: int = 1
    tasks: tuple[str, ...] = tuple(GOALS)
    """Tasks to run."""
    candidates: tuple[str, ...] = tuple(CANDIDATES)
    """Candidates to run. Default: all."""
    steps: int = 1_000_000
    """Simulator steps of a run."""

    def __post_init__(self):
        super().__post_init__()
        look_up(GOALS, self.tasks, "task")
        look_up(CANDIDATES, self.candidates, "candidate")

    def run(self, say: Say) -> None:
        """Train the missing runs, keep each of them, and write the page."""
        kept = KeptRuns(self.out, EPISODES)
        # Seed by seed and candidate by candidate, so that whatever time there is gives whole rows.
        names = [CANDIDATES[name] for name in self.candidates]
        plans = [
            self.plan(candidate, task, seed)
            for seed in range(FIRST_SEED, FIRST_SEED + self.seeds)
            for candidate in names
            for task in self.tasks
        ]
        kept.train(list({plan.folder: plan for plan in plans}.values()), self.parallel, say)
        self.write_pages()

    def plan(self, candidate: Candidate, task: str, seed: int) -> RunPlan:
        """Return one run of a candidate, with one thread."""
        config = changed(presets.resolve(task), candidate.changes)
        config = dataclasses.replace(
            config,
            total_steps=self.steps,
            max_iterations=None,
            seed=seed,
            threads=1,
            eval_every=0,
        )
        return RunPlan(self.runs / f"{task}-{candidate.name}-{seed}", config)

    def write_pages(self) -> None:
        """Write recipe.json and the page from the kept runs."""
        kept = KeptRuns(self.out, EPISODES)

        def runs_of(candidate: Candidate, task: str) -> list[Record]:
            """Return the kept runs; none if the candidate changes nothing on this task."""
            config = self.plan(candidate, task, FIRST_SEED).config
            same = config == self.plan(BASELINE, task, FIRST_SEED).config
            return [] if same and candidate is not BASELINE else kept.seeds_of(config)

        found = {
            name: {task: runs_of(candidate, task) for task in GOALS}
            for name, candidate in CANDIDATES.items()
        }
        page.write(self.out, found, GOALS, maker(self, self.out / "recipe.json"))
