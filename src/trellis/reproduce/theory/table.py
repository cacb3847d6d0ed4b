"""The table of the theory experiment, from theory.json alone: a row per problem and method."""

from pathlib import Path
from typing import Any

import numpy as np

from trellis.reproduce.files import Record, write_csv

COLUMNS = (
    *("problem", "method", "closed_1", "closed_10", "closed_last", "iterations_to_95_percent"),
    *("median_max_kl", "certified_share", "promised_share_theorem1", "promised_share_kl"),
    *("falls", "broken_certificates"),
)
"""The columns of theory.csv.

`closed_*` is the closed share of the gap to the optimum after 1, 10 and all iterations.
`iterations_to_95_percent` is the median number of iterations that close 95% of it, empty if never.
`median_max_kl` is the median of max KL(old ‖ new) over improving steps. `certified_share` is the
share of improving steps whose improvement Theorem 1 guarantees. `promised_share_*` is the median
share of a step's gain that Theorem 1 or its KL form guarantees. `falls` counts steps that lowered
η, and `broken_certificates` counts steps that gained less than guaranteed.
"""


def write_table(results: Record, path: Path) -> None:
    """Write the table to theory.csv."""
    write_csv(path, COLUMNS, table_rows(results))


def table_rows(results: Record) -> list[dict[str, Any]]:
    """Return a row per problem and method."""
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
    return lines
