"""Section 3 on finite MDPs: what the guarantee costs, which is the paper's reason for TRPO.

`trellis reproduce theory` makes three exact measurements (`measurements.py`):

- learning: the share of the gap to the optimum that each method has closed, by iteration, for
  Algorithm 1, conservative policy iteration, trust regions at several δ, and policy iteration;
- tightness: how far L is from η, and how far each bound says it could be, by total variation;
- steps: the largest KL divergence that the penalty C allows Algorithm 1's first step, by γ.

The results are theory.json (everything), theory.csv (a line per problem and method) and theory.png.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trellis.reproduce.experiment import Experiment, command, require_at_least_one
from trellis.reproduce.files import Record, made_by, write_csv, write_json
from trellis.reproduce.sweep import Say
from trellis.reproduce.theory import figure, measurements
from trellis.reproduce.theory.measurements import TheorySweep

COLUMNS = (
    *("problem", "method", "closed_1", "closed_10", "closed_last", "iterations_to_95_percent"),
    *("median_max_kl", "certified_share", "promised_share_theorem1", "promised_share_kl"),
    *("falls", "broken_certificates"),
)
"""The columns of theory.csv.

`closed_*` is the share of the gap to the optimum that is closed after 1, 10 and all iterations.
`iterations_to_95_percent` is the median number of iterations that close 95% of it, empty if never.
`median_max_kl` is the median over improving steps of max KL(old ‖ new). `certified_share` is the
share of improving steps that Theorem 1 could have promised to improve. `promised_share_*` is the
median share of a step's gain that Theorem 1 or its KL form promised. `falls` counts steps that
lowered η, `broken_certificates` those that gained less than promised.
"""


@dataclass(frozen=True)
class Theory(Experiment):
    """Algorithm 1, conservative policy iteration and trust regions on finite MDPs (Sec. 3)."""

    name: ClassVar = "theory"
    out: Path = Path("results/theory")
    seeds: int = 10
    """Number of random problems."""

    def __post_init__(self):
        require_at_least_one(seeds=self.seeds)

    def run(self, say: Say, sweep: TheorySweep | None = None) -> dict[str, Any]:
        """Measure, and write theory.json, theory.csv and theory.png."""
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
        figure.plot(results, self.out / "theory.png")
        return results


def write_table(results: Record, path: Path) -> None:
    """Write a line per problem and method."""
    lines = []
    for row in results["learning"]:
        by_iteration = dict(zip(row["iterations"], row["closed_mean"], strict=True))
        reached = [np.inf if count is None else count for count in row["iterations_to_95_percent"]]
        middle = float(np.median(reached))
        lines.append(
            {
                **row,
                "closed_1": by_iteration[1],
                "closed_10": by_iteration.get(10),
                "closed_last": row["closed_mean"][-1],
                "iterations_to_95_percent": middle if np.isfinite(middle) else None,
            }
        )
    write_csv(path, COLUMNS, lines)
