"""Experiments about vine: `trellis reproduce vine-variance`, `vine-bias` and `vine-picture`.

Each writes its data file. All write the same page.
"""

import dataclasses
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.reproduce.experiment import Experiment, command
from trellis.reproduce.files import made_by, read_results, write_json
from trellis.reproduce.sweep import Say
from trellis.reproduce.vine import bias, figure, page, variance
from trellis.reproduce.vine.branches import collect, picture_record
from trellis.reproduce.vine.variance import VarianceSweep
from trellis.runs.provenance import commit
from trellis.training.trainer import Trainer


@dataclass(frozen=True)
class VineVariance(Experiment):
    """Variance of vine's estimates, with and without common random numbers (Sec. 5.2)."""

    name: ClassVar = "vine-variance"
    out: Path = Path("results/vine")
    batches: int = VarianceSweep.batches
    """Number of batches per sampler, at least 2."""

    def __post_init__(self):
        VarianceSweep(batches=self.batches)  # Validates it.

    def run(self, say: Say, sweep: VarianceSweep | None = None) -> dict[str, Any]:
        """Measure variances, and write the data file, the figure and the page."""
        sweep = sweep or VarianceSweep(batches=self.batches)
        started = time.perf_counter()
        rows = []
        for name, (config, moments) in variance.tasks().items():
            trainer = Trainer(dataclasses.replace(config, seed=sweep.seed))
            state = trainer.start()
            for iterations in moments:
                say(f"Measuring {name} after {iterations} iterations")
                while state.iteration < iterations:
                    state, _ = trainer.iterate(state)
                measured = variance.measure_differences(trainer, state.theta, sweep)
                gradients = variance.measure_gradients(trainer, state.theta, sweep)
                about = {"task": name, "iterations": iterations}
                rows.append({**about, **measured, "gradients": gradients})
            trainer.close()
        results = {
            "commit": commit(),
            "seconds": round(time.perf_counter() - started, 1),
            "sweep": asdict(sweep),
            "rows": rows,
        }
        write_json(self.out / f"{page.VARIANCE}.json", results)
        self.write_pages()
        return results

    def write_pages(self) -> None:
        """Write the figure and the page from vine-variance.json."""
        results = read_results(self.out / f"{page.VARIANCE}.json")
        figure.plot_variance(results, self.out / f"{page.VARIANCE}.png")
        page.write(self.out)


@dataclass(frozen=True)
class VineBias(Experiment):
    """Bias of vine's gradient with 4 of 18 actions, by proposal, on finite MDPs (Sec. 5.2)."""

    name: ClassVar = "vine-bias"
    out: Path = Path("results/vine")

    def run(self, say: Say, sweep: bias.BiasSweep | None = None) -> dict[str, Any]:
        """Enumerate all choices of actions, and write the data file and the page."""
        sweep = sweep or bias.BiasSweep()
        say(f"Enumerating {sweep.actions}^{sweep.tried} choices of actions per state")
        results = {
            **made_by(command(self)),
            "sweep": asdict(sweep),
            "rows": bias.measure(sweep),
        }
        write_json(self.out / f"{page.BIAS}.json", results)
        self.write_pages()
        return results

    def write_pages(self) -> None:
        """Write the page from vine-bias.json."""
        page.write(self.out)


@dataclass(frozen=True)
class VinePicture(Experiment):
    """Figure 1: the trunks and branches of one vine iteration, from real states."""

    name: ClassVar = "vine-picture"
    out: Path = Path("results/vine")
    iterations: int = 25
    """Number of iterations of learning before the picture."""

    def run(self, say: Say) -> None:
        """Sample one small vine iteration, and write its data file, the figure and the page."""
        say(f"Training for {self.iterations} iterations")
        samples, rollouts = collect(
            self.iterations, trunks=3, trunk_length=100, states=10, actions=4, rollout_length=40
        )
        record = {
            **made_by(command(self)),
            "iterations": self.iterations,
            **picture_record(samples, rollouts),
        }
        write_json(self.out / f"{page.BRANCHES}.json", record)
        self.write_pages()

    def write_pages(self) -> None:
        """Write the figure and the page from vine-branches.json."""
        record = read_results(self.out / f"{page.BRANCHES}.json")
        figure.plot_branches(record, self.out / f"{page.BRANCHES}.png")
        page.write(self.out)
