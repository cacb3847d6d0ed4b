"""Scores and curves of an ablation as plain numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.analysis.compare import training_return
from trellis.analysis.statistics import mean_interval
from trellis.optimization.fisher import MIN_SAMPLES
from trellis.reproduce.ablations.claims import largest_fall
from trellis.reproduce.ablations.plans import Variation
from trellis.reproduce.comparison.scores import Log, curve, returns, steps
from trellis.reproduce.run_plan import RunPlan


def variation_record(variation: Variation, plans: Sequence[RunPlan]) -> dict[str, Any]:
    """Return the runs of one variation and the means over them."""
    logs = [plan.rows for plan in plans]
    value = variation.value
    if variation.group == "fisher-fraction":
        # F is computed on at least MIN_SAMPLES.
        value = max(value, min(1.0, MIN_SAMPLES / plans[0].config.sampling.batch_size))
    measured = [run_record(plan, rows) for plan, rows in zip(plans, logs, strict=True)]
    return {
        "group": variation.group,
        "asked": variation.value,
        "value": value,
        "is_the_paper": not variation.changes,
        **{
            name: mean_interval([run[name] for run in measured]).to_json()
            for name in ("final_return", "mean_return")
        },
        "runs": measured,
        "curve": curve(logs, steps, returns),
    }


def run_record(plan: RunPlan, rows: Log) -> dict[str, Any]:
    """Return the scores of one run from its log."""
    seen = returns(rows)
    return {
        "run": plan.folder.name,
        "seed": plan.config.seed,
        "final_return": training_return(rows),
        "mean_return": float(np.nanmean(seen)),
        "first_return": float(seen[np.isfinite(seen)][0]),
        "largest_kl": max(row.get("kl") or 0.0 for row in rows),
        "largest_fall": largest_fall(seen),
        "refused_steps": sum(row.get("status") != "accepted" for row in rows),
        "seconds_update": float(np.median([row["seconds_update"] for row in rows])),
        "seconds_sampling": float(np.median([row["seconds_sampling"] for row in rows])),
    }
