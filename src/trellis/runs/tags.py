"""Names of metrics in TensorBoard and other trackers, in groups: rollout, step, critic, time, eval.

A name of the log, such as `eval_return_mean`, becomes `eval/return_mean`. Charts of one group are
side by side there.
"""

import math
from collections.abc import Mapping
from typing import Any

GROUPS: Mapping[str, tuple[str, ...]] = {
    "rollout": ("episode", "rollout", "reward_"),
    "step": (
        *("kl", "max_kl", "surrogate", "step_", "backtracks", "cg_", "gradient_", "entropy"),
        *("full_steps", "normalization_kl"),
    ),
    "critic": ("critic_", "explained_variance"),
    "time": ("iteration", "steps", "seconds_"),
    "eval": ("eval_",),
    "search": ("population", "best_member", "median_member", "search_"),
}
"""Groups of metrics by the starts of their names."""
DROPPED = ("eval_", "critic_", "search_")
"""Starts of names that say the same as their group."""
OTHER = "other"
"""Group of metrics that callbacks add."""


def tag(name: str) -> str:
    """Return the name of a metric with its group, such as `rollout/episode_return_mean`."""
    if "/" in name:
        return name
    # The longest start decides: `step_fraction` is of the step, `steps` of the time.
    found = [(len(s), group) for group, starts in GROUPS.items() for s in starts if _is(name, s)]
    group = max(found)[1] if found else OTHER
    for prefix in DROPPED:
        name = name.removeprefix(prefix)
    return f"{group}/{name}"


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of an iteration by their grouped names."""
    return {
        tag(name): float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _is(name: str, start: str) -> bool:
    return name.startswith(start) and (start != "kl" or name == "kl")
