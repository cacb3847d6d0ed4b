"""How good a policy is: episodes on environments of their own, as a rule without exploration noise.

Seeds are the run's, the same at every evaluation, so that two policies of a run meet the same
initial states.
"""

from collections.abc import Callable

import numpy as np

from trellis.blas import one_blas_thread
from trellis.envs.batch import BatchEnv, Observation
from trellis.envs.spaces import Encoder
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.training.state import Evaluation

Player = Callable[[Observation], np.ndarray]
"""From what is seen to an action for each row."""
EVALUATION_LIMIT = 100_000
"""Steps after which an episode that does not end is given up."""


def play(env: BatchEnv, act: Player, seeds: np.ndarray) -> Evaluation:
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
        self,
        make_env: Callable[[int], BatchEnv],
        policy: Policy,
        encode: Encoder,
        seed: int,
        *,
        drawn: bool = False,
    ):
        self._make_env, self._policy, self._encode = make_env, policy, encode
        self._seed, self._drawn = seed, drawn
        self._env: BatchEnv | None = None

    def evaluate(
        self, theta: np.ndarray, normalize: Callable[[np.ndarray], np.ndarray], episodes: int
    ) -> Evaluation:
        """So many episodes, side by side."""
        if self._env is None or self._env.num_envs != episodes:
            self.close()
            self._env = self._make_env(episodes)
        rng = stream(self._seed, Purpose.EVALUATION)
        seeds = rng.integers(2**31, size=episodes)
        return play(self._env, self.player(theta, normalize, rng), seeds)

    def player(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        rng: np.random.Generator,
    ) -> Player:
        """From what is seen to actions, in the policy's own terms: the most probable ones, or
        drawn, with noise from `rng`."""
        distribution = self._policy.distribution

        def act(observation: Observation) -> np.ndarray:
            features = normalize(self._encode(observation))
            params, _ = self._policy.distribution_params(theta, features)
            if not self._drawn:
                return distribution.mode(params)
            return distribution.sample(params, distribution.noise(rng, (len(features),)))

        return act

    def close(self) -> None:
        """Lets go of the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None
