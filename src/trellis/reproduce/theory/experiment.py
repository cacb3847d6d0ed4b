"""Section 3 on finite MDPs: what the guarantee costs, which is the paper's reason for TRPO.

`trellis reproduce theory` makes three exact measurements (`measurements.py`):

- learning: the share of the gap to the optimum that each method closes, by iteration, for
  Algorithm 1, conservative policy iteration, trust regions at several δ, and policy iteration;
- tightness: the distance of L from η, and its bounds, by total variation;
- steps: the largest KL divergence of Algorithm 1's first step, by γ.

The results are theory.json (everything), theory.csv (a row per problem and method), a figure and a
page.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from trellis.reproduce.experiment import Experiment, command, require_at_least_one
from trellis.reproduce.files import Record, made_by, read_results, write_json
from trellis.reproduce.sweep import Say
from trellis.reproduce.theory import figure, measurements, page
from trellis.reproduce.theory.measurements import TheorySweep
from trellis.reproduce.theory.table import write_table


@dataclass(frozen=True)
class Theory(Experiment):
    """Algorithm 1, conservative policy iteration and trust regions on finite MDPs (Sec. 3)."""

    name: ClassVar = "theory"
    out: Path = Path("results/theory")
    seeds: int = 10
    """Number of random MDPs per problem."""

    def __post_init__(self):
        require_at_least_one(seeds=self.seeds)

    def run(self, say: Say, sweep: TheorySweep | None = None) -> dict[str, Any]:
        """Measure, and write the data files, the figure and the page."""
        sweep = sweep or TheorySweep()
        started = time.perf_counter()
        results = {
            **made_by(command(self)),
            "seeds": self.seeds,
            "sweep": asdict(sweep),
            "learning": measurements.measure_learning(sweep, self.seeds),
            "tightness": measurements.measure_tightness(sweep, self.seeds),
            "steps": measurements.measure_steps(sweep, self.seeds),
            "seconds": round(time.perf_counter() - started, 1),
        }
        write_json(self.out / "theory.json", results)
        write_table(results, self.out / "theory.csv")
        self._write_page(results)
        return results

    def write_pages(self) -> None:
        """Write the figure and the page from theory.json."""
        self._write_page(read_results(self.out / "theory.json"))

    def _write_page(self, results: Record) -> None:
        figure.plot(results, self.out / f"{page.FIGURE}.png")
        page.write(results, self.out)
