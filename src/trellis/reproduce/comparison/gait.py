"""Evaluation of a final policy: returns, lengths and forward velocities of its episodes.

The episodes are those of `trellis eval`, with the same seeds and usually without exploration noise.
The environments report their velocity as `x_velocity` in `env.info`.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.envs.batch import BatchEnv, Step
from trellis.policies.saved import SavedPolicy
from trellis.reproduce.sweep import command, failure_message
from trellis.training.evaluation import Evaluation, evaluate_saved

EPISODES = 20
WALKS_LENGTH = 500
"""Smallest length of the median episode of a gait, in steps; an episode has at most 1,000."""
WALKS_VELOCITY = 0.7
"""Smallest mean velocity of a gait in m/s."""
VIDEO_STEPS = 250
"""Length of a video in steps."""


@dataclass(frozen=True)
class Episodes(Evaluation):
    """Episodes of one policy."""

    velocities: np.ndarray | None
    """Mean forward velocity of each episode in m/s; None if the task has no velocity."""

    def summary(self) -> dict[str, Any]:
        """Return the statistics of the episodes as plain numbers."""
        found = {
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "median_length": float(np.median(self.lengths)),
        }
        if self.velocities is not None:
            # Over all time steps, so that a long episode counts for more than a stumble.
            mean = float(np.average(self.velocities, weights=self.lengths))
            found["mean_velocity"] = mean
        return found


def evaluate(folder: Path, episodes: int = EPISODES) -> Episodes:
    """Play episodes with the last policy of the run in `folder`."""
    distance, moves = np.zeros(episodes), False

    def add_velocity(env: BatchEnv, _: Step, active: np.ndarray) -> None:
        nonlocal moves
        if "x_velocity" in env.info:
            distance[active] += env.info["x_velocity"][active]
            moves = True

    played = evaluate_saved(SavedPolicy.load(folder), episodes, on_step=add_velocity)
    velocities = distance / played.lengths if moves else None
    return Episodes(played.returns, played.lengths, velocities)


def record_video(folder: Path, path: Path) -> str | None:
    """Record a short video of the last policy; return the error message if that fails."""
    arguments = ["record", str(folder), "--out", str(path), "--max-steps", str(VIDEO_STEPS)]
    # In its own process: MuJoCo's renderer has to be chosen before MuJoCo is imported.
    result = subprocess.run(command(arguments), capture_output=True, text=True)
    return None if result.returncode == 0 else failure_message(result.stderr)
