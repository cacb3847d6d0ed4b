"""The runs of the ablations as data: TRPO with one part changed at a time.

Every run is single-path TRPO with the paper's settings except for one change: no line search,
another number of CG iterations, another part of the data for the Fisher matrix, another δ, or a
penalty C instead of the constraint. The unchanged runs are those of the comparison.

δ changes by factors of nine and C by factors of three. The length of a step is proportional to √δ
and to 1/C, so both change it by factors of three.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trellis.presets.paper import PAPER_MAX_KL

DELTA = PAPER_MAX_KL
DELTAS = [float(f"{DELTA * 9.0**power:.3g}") for power in range(-2, 3)]
PENALTIES = [float(f"{3.0**power:.3g}") for power in range(-2, 3)]


@dataclass(frozen=True)
class Variation:
    """One change of the step settings."""

    group: str
    """Changed part of TRPO."""
    value: float
    changes: Mapping[str, Any]
    """Changed step settings; empty for the unchanged method."""

    @property
    def name(self) -> str:
        """Name of the runs without their seed."""
        return f"{self.group}-{self.value:g}"


def _varied(
    group: str, setting: str, values: Sequence[float], unchanged: float | None = None
) -> Iterator[Variation]:
    for value in values:
        yield Variation(group, value, {} if value == unchanged else {setting: value})


VARIATIONS = (
    # No line search, at the paper's δ and at a larger one; max-kl has the same δ with it.
    Variation("no-line-search", DELTA, {"line_search": False}),
    Variation("no-line-search", DELTAS[3], {"line_search": False, "max_kl": DELTAS[3]}),
    *_varied("cg-iterations", "cg_iterations", (1, 2, 5, 10, 20, 40), 10),
    *_varied("fisher-fraction", "fisher_fraction", (0.01, 0.03, 0.1, 0.3, 1.0), 0.1),
    *_varied("max-kl", "max_kl", DELTAS, DELTA),
    *_varied("penalty", "penalty", PENALTIES),
)
PARTS = tuple(dict.fromkeys(variation.group for variation in VARIATIONS))
