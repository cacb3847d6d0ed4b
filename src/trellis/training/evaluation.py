"""How good a policy is: episodes on environments of their own, by default without noise.

Seeds are the run's, the same at every evaluation, so that two policies of a run meet the same
initial states.
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
"""Steps after which an episode that does not end is cut."""

OnStep = Callable[[BatchEnv, Step, np.ndarray], None]
"""Called after every step with the environments, the step, and which rows were active in it."""


@dataclass(frozen=True)
class Evaluation:
    """What a policy achieved in some episodes."""

    returns: np.ndarray
    """Undiscounted return of each episode."""
    lengths: np.ndarray
    """Steps of each episode."""

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
        """Standard deviation of the returns over episodes."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean number of steps of an episode."""
        return float(np.mean(self.lengths))


def play(env: BatchEnv, act: Actor, seeds: np.ndarray, on_step: OnStep | None = None) -> Evaluation:
    """Play one episode in each row of a batch, from these seeds."""
    count = len(seeds)
    observation = env.reset(np.arange(count), seeds)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    active = np.ones(count, bool)
    with one_blas_thread():
        for _ in range(MAX_STEPS):
            step = env.step(act(observation), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            if on_step is not None:
                on_step(env, step, active)
            active = active & ~(step.terminated | step.truncated)
            if not active.any():
                break
            observation = step.observation
    return Evaluation(returns, lengths)


class Evaluator:
    """Evaluates policies of one run; its environments are made when first needed, and kept."""

    def __init__(self, make_env: MakeEnv):
        self._make_env = make_env
        self._env: BatchEnv | None = None

    def evaluate(
        self,
        policy: SavedPolicy,
        episodes: int,
        *,
        stochastic: bool | None = None,
        on_step: OnStep | None = None,
    ) -> Evaluation:
        """Play episodes side by side, from the seeds of the policy's run."""
        if self._env is None or self._env.num_envs != episodes:
            self.close()
            self._env = env = self._make_env(episodes)
            policy.require_spaces((env.observation_space, env.action_space), env.env_id)
        rng = stream(policy.config.seed, Purpose.EVALUATION)
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
