"""Vine in numbers and in a picture: `trellis reproduce vine-variance` and `vine-picture`.

`VineVariance` writes vine-variance.json and vine-variance.png, `VinePicture` vine-branches.png.
"""

import dataclasses
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.reproduce.experiment import Experiment
from trellis.reproduce.files import write_json
from trellis.reproduce.sweep import Say
from trellis.reproduce.vine import figure, variance
from trellis.reproduce.vine.branches import collect
from trellis.reproduce.vine.variance import VarianceSweep
from trellis.runs.provenance import commit
from trellis.training.trainer import Trainer


@dataclass(frozen=True)
class VineVariance(Experiment):
    """What vine and common random numbers do to the variance of estimates (Sec. 5.2)."""

    name: ClassVar = "vine-variance"
    out: Path = Path("results/vine")
    batches: int = VarianceSweep.batches
    """Number of batches of each sampler, at least 2."""

    def __post_init__(self):
        VarianceSweep(batches=self.batches)  # Validates it.

    def run(self, say: Say, sweep: VarianceSweep | None = None) -> dict[str, Any]:
        """Measure variances, and write vine-variance.json and vine-variance.png."""
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
        write_json(self.out / "vine-variance.json", results)
        figure.plot_variance(results, self.out / "vine-variance.png")
        return results


@dataclass(frozen=True)
class VinePicture(Experiment):
    """Figure 1 from real states: the trunks and branches of one vine iteration."""

    name: ClassVar = "vine-picture"
    out: Path = Path("results/vine")
    iterations: int = 25
    """Number of iterations of learning beforehand."""

    def run(self, say: Say) -> None:
        """Plot one small vine iteration after some learning."""
        say(f"Training for {self.iterations} iterations")
        samples, rollouts = collect(
            self.iterations, trunks=3, trunk_length=100, states=10, actions=4, rollout_length=40
        )
        figure.plot_branches(samples, rollouts, self.out / "vine-branches.png")
