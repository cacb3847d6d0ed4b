"""What policies score in the games, episode by episode: those of runs, and uniform random actions.

Actions are drawn from the policy. That is how the policy was trained, and the most probable action
can get stuck for half an hour of play where the game waits for another one (Breakout, until it is
told to serve the ball). An episode ends with the game, or after 108,000 frames.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from trellis import envs
from trellis.analysis.statistics import mean_interval
from trellis.config import TrainConfig
from trellis.envs.spaces import observation_encoder
from trellis.estimation.normalization import Moments
from trellis.reproduce.atari.plans import FoundRun
from trellis.rng import Purpose, stream
from trellis.runs import checkpoint
from trellis.runs.provenance import commit
from trellis.training.build import build_policy, env_from_catalog
from trellis.training.evaluation import Evaluator, play
from trellis.training.shard import normalizer
from trellis.training.state import Evaluation, moments_from_arrays

EPISODES = 30
ACTIONS = "drawn from the policy"
RANDOM_SEED = 0


class Latest(NamedTuple):
    """The last checkpoint of a run."""

    theta: np.ndarray
    moments: Moments
    """Of what its policy saw."""
    iteration: int
    steps: int

    @property
    def fingerprint(self) -> str:
        """By which a policy that has been evaluated is known again."""
        parts = self.theta, self.moments.count, self.moments.mean, self.moments.squares
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def latest(run: FoundRun) -> Latest:
    """The policy that a run has come to."""
    saved = checkpoint.load_latest(run.folder / checkpoint.CHECKPOINTS)
    moments = moments_from_arrays("observation_moments", saved.arrays)
    return Latest(saved.arrays["theta"], moments, saved.iteration, int(saved.values["steps"]))


def play_policy(
    config: TrainConfig, theta: np.ndarray, moments: Moments, episodes: int
) -> Evaluation:
    """Episodes of a run's game, from the seeds of `trellis eval`."""
    make_env = env_from_catalog(config)
    env = make_env(1)
    try:
        features, encode = observation_encoder(env.observation_space)
        policy = build_policy(config, features, env)
    finally:
        env.close()
    evaluator = Evaluator(make_env, policy, encode, config.seed, drawn=True)
    try:
        return evaluator.evaluate(theta, normalizer(config, moments), episodes)
    finally:
        evaluator.close()


def play_random(env_id: str, options: Mapping[str, Any], episodes: int) -> Evaluation:
    """Episodes of uniform random actions, by the same rules."""
    env = envs.make(env_id, episodes, **options)
    try:
        rng = stream(RANDOM_SEED, Purpose.EVALUATION)
        seeds = rng.integers(2**31, size=episodes)
        space = env.action_space
        assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        sizes = np.atleast_1d(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        return play(env, lambda _: rng.integers(sizes, size=(episodes, len(sizes))), seeds)
    finally:
        env.close()


def summary(played: Evaluation) -> dict[str, Any]:
    """Mean score with Student's 95% interval over episodes, as plain numbers."""
    mean, low, high = mean_interval(played.returns.tolist())
    return {
        "episodes": played.episodes,
        "mean_score": mean,
        "interval_95": [None if np.isnan(end) else end for end in (low, high)],
        "mean_length": played.mean_length,
        "scores": played.returns.tolist(),
        "commit": commit(),
    }
