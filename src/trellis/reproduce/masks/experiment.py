"""What action masks are worth on a game with many illegal moves: `trellis reproduce masks`.

The same policy trains on Minesweeper with the game's own mask, and without it, where an illegal
action costs a penalty. Illegal actions are counted in every step of training. Finished runs are
kept as a line in `results/masks/runs.jsonl`; `--report-only` writes the page from what is there.
"""

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trellis import presets
from trellis.reproduce.experiment import Experiment, maker, require_at_least_one
from trellis.reproduce.files import Record, ResultsError, append_line, rounded
from trellis.reproduce.kept_runs import POINTS
from trellis.reproduce.masks import page
from trellis.reproduce.masks.game import ID, minesweeper
from trellis.reproduce.sweep import Say
from trellis.runs.provenance import commit
from trellis.training.team import LocalTeam
from trellis.training.trainer import Trainer

VARIANTS = {"mask": True, "penalty": False}
"""Whether the policy sees the mask, by the name of the variant."""
RUNS = "runs.jsonl"
"""File of the finished runs."""


@dataclass(frozen=True)
class Masks(Experiment):
    """Action masks against penalties, on a game with many illegal moves."""

    name: ClassVar = "masks"
    out: Path = Path("results/masks")
    seeds: int = 3
    """Number of seeds, one run each."""
    first_seed: int = 0
    """First of the seeds, so that several processes can share the experiment."""
    steps: int = 1_000_000
    """Simulator steps of a run."""

    def __post_init__(self):
        require_at_least_one(seeds=self.seeds, steps=self.steps)

    def run(self, say: Say) -> None:
        """Train the missing runs, keep each of them, and write the page."""
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for variant in VARIANTS:
                if self._find(variant, seed):
                    say(f"{variant}, seed {seed}: kept")
                    continue
                run = train(variant, seed, self.steps)
                append_line(self.out / RUNS, run)
                last, illegal = run["curve"]["score"][-1], run["illegal"]
                say(f"{variant}, seed {seed}: {last:.1f} squares, {illegal:,} illegal actions")
        self.write_pages()

    def write_pages(self) -> None:
        """Write the page and the figure from the kept runs."""
        kept = sorted(self._kept(), key=lambda run: run["seed"])
        runs = {name: [run for run in kept if run["variant"] == name] for name in VARIANTS}
        if not all(runs.values()):
            raise ResultsError(f"{self.out / RUNS} must have a finished run of each variant")
        page.write(self.out, runs, maker(self, self.out / "masks.json"))

    def _kept(self) -> list[Record]:
        path = self.out / RUNS
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        runs = [json.loads(line) for line in lines]
        return [run for run in runs if run["total_steps"] == self.steps]

    def _find(self, variant: str, seed: int) -> bool:
        return any(run["variant"] == variant and run["seed"] == seed for run in self._kept())


def train(variant: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one variant and return its counts and its curve.

    The score of an iteration is the number of squares that were opened safely, divided by the
    number of episodes that ended.
    """
    from trellis.envs.jax.batch import JaxBatch

    env, start = minesweeper(VARIANTS[variant]), time.perf_counter()
    config = dataclasses.replace(
        presets.resolve(ID), total_steps=steps, seed=seed, threads=1, eval_every=0
    )
    trainer = Trainer(config, lambda n: JaxBatch(env, n, env_id=ID))
    team, state = trainer.team, trainer.start()
    assert isinstance(team, LocalTeam)
    illegal, curve = 0, []
    while state.steps < steps:
        state, _ = trainer.iterate(state)
        samples = team.shards[0].samples
        illegal += int(np.sum(samples.reward < 0))
        curve.append((state.steps, np.sum(samples.reward > 0) / max(1, np.sum(samples.ended))))
    trainer.close()
    parts = np.array_split(np.array(curve), min(POINTS, len(curve)))
    return {
        "variant": variant,
        "seed": seed,
        "total_steps": steps,
        "steps": state.steps,
        "illegal": illegal,
        "curve": {
            "steps": rounded(part[-1, 0] for part in parts),
            "score": rounded(part[:, 1].mean() for part in parts),
        },
        "seconds": round(time.perf_counter() - start, 1),
        "commit": commit(),
    }
