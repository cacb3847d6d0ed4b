"""Evaluates policies: plays episodes in separate environments, by default without noise.

All evaluations of a run use the same seeds, so two policies of a run start from the same states.
The policy with the best evaluation plays other episodes than those that chose it.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trellis.blas import one_blas_thread
from trellis.envs.batch import BatchEnv, Step
from trellis.envs.consent import require_consent
from trellis.policies.saved import Actor, SavedPolicy
from trellis.rng import Purpose, stream
from trellis.training.build import MakeEnv, env_maker

MAX_STEPS = 100_000
"""Number of steps after which an episode without an end is cut."""

OnStep = Callable[[BatchEnv, Step, np.ndarray], bool | None]
"""Function called after every step with the batch, the step, and which environments were active.

False stops the episodes.
"""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of the episodes of one evaluation."""

    returns: np.ndarray
    """Undiscounted return of each episode."""
    lengths: np.ndarray
    """Number of steps of each episode."""

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        """Mean return over episodes."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the return over episodes."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean number of steps of an episode."""
        return float(np.mean(self.lengths))


def play(env: BatchEnv, act: Actor, seeds: np.ndarray, on_step: OnStep | None = None) -> Evaluation:
    """Play one episode in each environment of a batch.

    Args:
        env: Batch with one environment per seed.
        act: Function from observations to actions.
        seeds: Seed of each episode.
        on_step: Function called after every step.
    """
    count = len(seeds)
    observation = env.reset(np.arange(count), seeds)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    active = np.ones(count, bool)
    with one_blas_thread():
        for _ in range(MAX_STEPS):
            step = env.step(act(observation), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            if on_step is not None and on_step(env, step, active) is False:
                break
            active = active & ~(step.terminated | step.truncated)
            if not active.any():
                break
            observation = step.observation
    return Evaluation(returns, lengths)


class Evaluator:
    """Evaluates policies of one run in a batch that the first evaluation creates.

    Args:
        make_env: Function that creates batches of the environment.
    """

    def __init__(self, make_env: MakeEnv):
        self._make_env = make_env
        self._env: BatchEnv | None = None
        self.watch: Callable[[int], None] | None = None
        """Function that slow environments call after each step; see `BatchEnv.on_step`."""

    def evaluate(
        self,
        policy: SavedPolicy,
        episodes: int,
        *,
        stochastic: bool | None = None,
        on_step: OnStep | None = None,
    ) -> Evaluation:
        """Play episodes side by side, from seeds that depend on the run's seed only.

        Args:
            policy: Policy to evaluate.
            episodes: Number of episodes.
            stochastic: Whether to sample actions; by default as the run's settings say.
            on_step: Function called after every step.
        """
        if self._env is None or self._env.num_envs != episodes:
            self.close()
            self._env = env = self._make_env(episodes)
            policy.require_spaces((env.observation_space, env.action_space), env.env_id)
        self._env.on_step = self.watch
        # The episodes that chose the best policy would flatter it.
        purpose = Purpose.BEST_EVALUATION if policy.is_best else Purpose.EVALUATION
        rng = stream(policy.config.seed, purpose)
        seeds = rng.integers(2**31, size=episodes)
        return play(self._env, policy.actor(rng, stochastic=stochastic), seeds, on_step)

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


def evaluate_saved(
    policy: SavedPolicy,
    episodes: int,
    *,
    stochastic: bool | None = None,
    on_step: OnStep | None = None,
    trust_env: bool = False,
) -> Evaluation:
    """Evaluate a saved policy in the environment that its settings name.

    Args:
        policy: the policy.
        episodes: how many episodes to play, from seeds that depend on the run's own alone.
        stochastic: whether to sample actions; by default as the run's evaluations do it.
        on_step: called after every step.
        trust_env: whether a module may be imported for the environment; see `envs.consent`.
    """
    config = policy.config
    require_consent(config.env, config.env_options, "the saved policy", trusted=trust_env)
    with contextlib.closing(Evaluator(env_maker(policy.config))) as evaluator:
        return evaluator.evaluate(policy, episodes, stochastic=stochastic, on_step=on_step)
