"""What the final policy of a run does: returns, lengths and forward velocity of its episodes.

The episodes are those of `trellis eval`: no exploration noise, the same seeds. The environments say
how fast they move (`x_velocity` in `env.info`), which the evaluation of a trainer does not keep.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis import envs
from trellis.agent import TRPO
from trellis.reproduce.sweep import complaint
from trellis.rng import Purpose, stream

EPISODES = 20
WALKS_LENGTH = 500
"""Steps of 1,000 that the median episode lasts at least, if a policy hops or walks at all."""
WALKS_VELOCITY = 0.7
"""Metres a second, in the mean, that count as a gait."""
VIDEO_STEPS = 250


@dataclass(frozen=True)
class Episodes:
    """Of one policy, an entry each."""

    returns: np.ndarray
    lengths: np.ndarray
    velocities: np.ndarray | None
    """Mean forward velocity in m/s; None for a task that goes nowhere."""

    def summary(self) -> dict[str, Any]:
        """As plain numbers."""
        found = {
            "episodes": len(self.returns),
            "mean_return": float(self.returns.mean()),
            "std_return": float(self.returns.std()),
            "median_length": float(np.median(self.lengths)),
        }
        if self.velocities is not None:
            # Over all time steps, so that a long episode counts for more than a stumble.
            mean = float(np.average(self.velocities, weights=self.lengths))
            found["mean_velocity"] = mean
        return found


def watch(folder: Path, episodes: int = EPISODES) -> Episodes:
    """Plays episodes with the last policy of the run in `folder`."""
    agent = TRPO.load(folder)
    config = agent.config
    env = envs.make(config.env, episodes, nthread=config.threads, **config.env_options)
    seeds = stream(config.seed, Purpose.EVALUATION).integers(2**31, size=episodes)
    try:
        observation = env.reset(np.arange(episodes), seeds)
        returns, way = np.zeros(episodes), np.zeros(episodes)
        lengths, active = np.zeros(episodes, np.int64), np.ones(episodes, bool)
        moves = False
        act = agent.player()
        while active.any():
            step = env.step(act(observation), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            if "x_velocity" in env.info:
                moves = True
                way += np.where(active, env.info["x_velocity"], 0.0)
            active = active & ~(step.terminated | step.truncated)
            observation = step.observation
    finally:
        env.close()
        agent.close()
    return Episodes(returns, lengths, way / lengths if moves else None)


def film(folder: Path, path: Path) -> str | None:
    """A short video of the last policy; why there is none, if there is none."""
    arguments = ["record", str(folder), "--out", str(path), "--max-steps", str(VIDEO_STEPS)]
    # A process of its own: how to draw has to be chosen before MuJoCo is imported.
    result = subprocess.run(
        [sys.executable, "-m", "trellis", *arguments], capture_output=True, text=True
    )
    return None if result.returncode == 0 else complaint(result.stderr)
