"""Run folders as training would have left them, without the training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trellis.config import TrainConfig, to_json
from trellis.reproduce.run_plan import RunPlan


def write_run(
    folder: Path,
    config: TrainConfig,
    returns: Sequence[float | None],
    *,
    iteration_steps: int = 100,
    **every_row: Any,
) -> Path:
    """A run whose iterations had these returns, in episodes of 10 steps."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(to_json(config)))
    rows = [
        {
            "iteration": index + 1,
            "steps": iteration_steps * (index + 1),
            "episodes": 10,
            "episode_return_mean": value,
            "episode_length_mean": 10.0,
            "seconds_sampling": 1.0,
            "seconds_update": 0.5,
            **every_row,
        }
        for index, value in enumerate(returns)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "checkpoints" / f"{len(rows):06d}").mkdir(parents=True)
    return folder


def finish(plan: RunPlan, last: float, *, first: float = 0.0, rises_until: float = 0.5) -> None:
    """The run of a plan, finished: returns rise along a line, then stay."""
    count = plan.config.max_iterations or 10
    turn = max(1, round(rises_until * (count - 1)))
    returns = [first + (last - first) * min(1.0, index / turn) for index in range(count)]
    write_run(plan.folder, plan.config, returns, iteration_steps=plan.config.total_steps // count)
