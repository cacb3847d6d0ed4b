"""Minesweeper of jumanji, with its own action mask or with the mask hidden.

A board has 100 squares, ten of them mines. A square that is open cannot be opened again, so ever
more of the 100 actions become illegal. An illegal action ends the episode and gives the penalty of
jumanji's own reward function. Every other reward is 0 or 1, so each illegal action of a run can be
counted by its reward, also where the policy sees the mask.
"""

from typing import Any

import jax
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition
from trellis.masks import MASK_KEY

ID = "jumanji/Minesweeper-v0"
"""Id of the game."""
PENALTY = 1.0
"""What an illegal action costs."""


class HiddenMask(FunctionalEnv):
    """An environment whose action mask the policy does not see.

    Args:
        env: Environment with the observation key `action_mask`.
    """

    def __init__(self, env: FunctionalEnv):
        space = env.observation_space
        assert isinstance(space, spaces.Dict)
        self._env = env
        self.observation_space = spaces.Dict(_without_mask(space.spaces))
        self.action_space = env.action_space
        self.max_episode_steps = env.max_episode_steps

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the visible observation at the start of an episode."""
        state, observation = self._env.reset(key)
        return state, _without_mask(observation)

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        after = self._env.step(key, state, action)
        return after._replace(observation=_without_mask(after.observation))


def _without_mask(parts: Any) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if key != MASK_KEY}


def minesweeper(masked: bool) -> FunctionalEnv:
    """Return the game, with the mask in its observations or without it.

    Raises:
        ImportError: jumanji is not installed.
    """
    try:
        from jumanji.environments.logic.minesweeper.reward import DefaultRewardFn
    except ImportError as missing:
        raise ImportError(
            "the experiment needs jumanji: pip install 'trellis-rl[jax-envs]'"
        ) from missing
    from trellis.envs.jax.jumanji_suite import make_jumanji

    rewards = DefaultRewardFn(1.0, 0.0, -PENALTY)
    env = make_jumanji("Minesweeper-v0", reward_function=rewards)
    return env if masked else HiddenMask(env)
