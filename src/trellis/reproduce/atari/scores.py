"""Scores of policies and of uniform random actions in the games, episode by episode.

Actions are sampled from the policy, as in training. The most probable action can get stuck: in
Breakout the game waits until the policy serves the ball. An episode ends with the game, or after
108,000 frames.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis import envs
from trellis.analysis.statistics import mean_interval
from trellis.policies.saved import SavedPolicy
from trellis.rng import Purpose, stream
from trellis.runs.provenance import commit
from trellis.training.evaluation import Evaluation, evaluate_saved, play

EPISODES = 30
"""Number of episodes of an evaluation."""
ACTIONS = "sampled from the policy"
RANDOM_SEED = 0


def fingerprint(policy: SavedPolicy) -> str:
    """Return a hash that identifies a policy."""
    moments = policy.observation_moments
    parts = policy.theta, moments.count, moments.mean, moments.squares
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def play_policy(policy: SavedPolicy, episodes: int) -> Evaluation:
    """Play episodes with a policy, with the seeds of `trellis eval`."""
    return evaluate_saved(policy, episodes, stochastic=True)


def play_random(env_id: str, options: Mapping[str, Any], episodes: int) -> Evaluation:
    """Play episodes with uniform random actions under the rules in `options`."""
    with contextlib.closing(envs.make(env_id, episodes, **options)) as env:
        rng = stream(RANDOM_SEED, Purpose.EVALUATION)
        seeds = rng.integers(2**31, size=episodes)
        space = env.action_space
        assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        sizes = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        return play(env, lambda _: rng.integers(sizes, size=(episodes, len(sizes))), seeds)


def summary(played: Evaluation) -> dict[str, Any]:
    """Return the mean score with Student's 95% interval over episodes, as plain numbers."""
    score = mean_interval(played.returns.tolist())
    return {
        "episodes": played.episodes,
        "mean_score": score.value,
        "interval_95": score.interval,
        "mean_length": played.mean_length,
        "scores": played.returns.tolist(),
        "commit": commit(),
    }
