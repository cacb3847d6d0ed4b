"""How good a policy is: episodes without exploration noise, on environments of their own.

Seeds are the run's, the same at every evaluation, so that two policies of a run meet the same
initial states.
"""

from collections.abc import Callable

import numpy as np

from trellis.envs.batch import BatchEnv, Observation
from trellis.envs.encoding import Encoder
from trellis.policies.policy import Policy
from trellis.runs.state import Evaluation
from trellis.streams import Purpose, stream
from trellis.threads import one_blas_thread

EVALUATION_LIMIT = 100_000
"""Steps after which an episode that does not end is given up."""


def play(env: BatchEnv, act: Callable[[Observation], np.ndarray], seeds: np.ndarray) -> Evaluation:
    """One episode in each row of a batch; `act` goes from what is seen to an action for each."""
    count = len(seeds)
    observation = env.reset(np.arange(count), seeds)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    active = np.ones(count, bool)
    with one_blas_thread():
        for _ in range(EVALUATION_LIMIT):
            step = env.step(act(observation), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            active = active & ~(step.terminated | step.truncated)
            if not active.any():
                break
            observation = step.observation
    return Evaluation(returns, lengths)


class Evaluator:
    """Plays policies of one kind; environments are made when first needed, and kept."""

    def __init__(
        self, make_env: Callable[[int], BatchEnv], policy: Policy, encode: Encoder, seed: int
    ):
        self._make_env, self._policy, self._encode = make_env, policy, encode
        self._seed = seed
        self._env: BatchEnv | None = None

    def evaluate(
        self, theta: np.ndarray, normalize: Callable[[np.ndarray], np.ndarray], episodes: int
    ) -> Evaluation:
        """So many episodes, side by side."""
        if self._env is None or self._env.num_envs != episodes:
            self.close()
            self._env = self._make_env(episodes)
        seeds = stream(self._seed, Purpose.EVALUATION).integers(2**31, size=episodes)
        return play(self._env, lambda seen: self.act(theta, normalize(self._encode(seen))), seeds)

    def act(self, theta: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """The most probable actions, in the policy's own terms."""
        params, _ = self._policy.distribution_params(theta, observation)
        return self._policy.distribution.mode(params)

    def close(self) -> None:
        """Lets go of the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None
