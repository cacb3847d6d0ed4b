"""What a control found: numbers from its log and its last policy, and a verdict on its cause."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.analysis.compare import LAST
from trellis.reproduce.comparison.gait import WALKS_LENGTH, WALKS_VELOCITY, Episodes
from trellis.reproduce.comparison.scores import reward_per_step
from trellis.reproduce.controls.plans import BY_NAME, Control
from trellis.reproduce.files import Record

LONGER = 1.5
"""Factor by which episodes must be longer than the reference's to count."""
SUPPORTED, PARTLY, NOT_SUPPORTED = "supported", "supported in part", "not supported"


def control_record(
    control: Control, rows: Sequence[Mapping[str, Any]], played: Episodes
) -> dict[str, Any]:
    """Return the numbers of a control.

    Args:
        control: The control.
        rows: Its log.
        played: Episodes of its last policy, without exploration noise.
    """
    last = max(1, round(LAST * len(rows)))
    lengths = np.array([row.get("episode_length_mean", np.nan) for row in rows], np.float64)
    known = lengths[-last:][np.isfinite(lengths[-last:])]
    summary = played.summary()
    return {
        "name": control.name,
        "change": control.change,
        "cause": control.cause,
        "iterations": rows[-1]["iteration"],
        "steps": rows[-1]["steps"],
        "training_length": float(known.mean()) if known.size else None,
        "first_length": float(lengths[0]) if np.isfinite(lengths[0]) else None,
        "reward_per_step": float(reward_per_step(rows)[-last:].mean()),
        "mean_return": summary["mean_return"],
        "median_length": summary["median_length"],
        "velocity": summary.get("mean_velocity"),
    }


def is_gait(row: Record) -> bool:
    """Return whether the last policy hops for long with forward velocity."""
    velocity = row["velocity"] or 0.0
    return row["median_length"] >= WALKS_LENGTH and velocity >= WALKS_VELOCITY


def verdict(row: Record, references: Mapping[str, Record]) -> str:
    """Return whether a control supports its cause; an empty text if that is not known."""
    control = BY_NAME[row["name"]]
    reference = references.get(control.base)
    if not control.cause or reference is None:
        return ""
    before, after = reference["training_length"], row["training_length"]
    if control.start is not None and not control.expects_gait:
        before = row["first_length"]  # What the policy could do at the start.
    if before is None or after is None:
        return ""
    if not control.expects_gait:
        return SUPPORTED if LONGER * after <= before else NOT_SUPPORTED
    if is_gait(row):
        return SUPPORTED
    return PARTLY if after >= LONGER * before else NOT_SUPPORTED
