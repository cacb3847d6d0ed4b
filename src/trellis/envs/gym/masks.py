"""Delivers the action masks of Gymnasium environments as the key `action_mask` of observations.

Environments offer masks in three ways, and the first that is found counts: as a key of the
observation (PettingZoo, Jumanji, Pgx), by a method `action_masks()` (as sb3-contrib reads it), or
as `info["action_mask"]`. A wrapper turns the last two into the first.
"""

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np

from trellis.envs.gym.answers import InvalidAnswerError
from trellis.masks import (
    MASK_KEY,
    MaskError,
    add_mask,
    factor_sizes,
    mask_size,
    read_mask,
    with_mask,
)

METHOD = "action_masks"
"""Name of the method that returns the mask of the present state."""
MaskSource = Literal["method", "info"]
"""Where a mask comes from that is not a part of the observation."""


def find_source(env: gymnasium.Env, info: Any = None) -> MaskSource | None:
    """Return where the masks of an environment come from; None if observations have them, or none.

    Args:
        env: The environment.
        info: What `reset` returned beside the observation, if it was called.
    """
    if not factor_sizes(env.action_space) or mask_size(env.observation_space):
        return None
    if env.has_wrapper_attr(METHOD) and callable(env.get_wrapper_attr(METHOD)):
        return "method"
    return "info" if isinstance(info, Mapping) and MASK_KEY in info else None


class MaskedObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment whose observations are Dicts with the key `action_mask`.

    The wrapper has no state of its own.

    Args:
        env: The environment.
        source: Where its masks come from.
    """

    def __init__(self, env: gymnasium.Env, source: MaskSource):
        super().__init__(env)
        self.source: MaskSource = source
        size = sum(factor_sizes(env.action_space))
        self.observation_space = with_mask(env.observation_space, size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(observation, info, ended=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Advance by one step. The mask after the end of an episode may be missing."""
        answer = self.env.step(action)
        if not isinstance(answer, tuple) or len(answer) != 5:
            return answer  # The batch says what is wrong.
        observation, reward, terminated, truncated, info = answer
        ended = bool(np.any(terminated) or np.any(truncated))
        observation = self._with_mask(observation, info, ended=ended)
        return observation, reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: Any, *, ended: bool) -> Any:
        space = self.env.action_space
        if self.source == "method":
            value = self.env.get_wrapper_attr(METHOD)()
        elif isinstance(info, Mapping) and MASK_KEY in info:
            value = info[MASK_KEY]
        elif ended:
            value = np.zeros(sum(factor_sizes(space)), bool)
        else:
            raise InvalidAnswerError(
                f"info has no {MASK_KEY!r}, which it had after the first reset"
            )
        try:
            return add_mask(observation, read_mask(value, space).astype(np.int8))
        except MaskError as error:
            raise InvalidAnswerError(str(error)) from None


def deliver_masks(env: gymnasium.Env) -> gymnasium.Env:
    """Return an environment whose observations have their masks, if it offers any.

    Args:
        env: The environment; it is reset if only its `info` can tell.
    """
    if not factor_sizes(env.action_space) or mask_size(env.observation_space):
        return env
    source = find_source(env) or find_source(env, env.reset(seed=0)[1])
    return env if source is None else MaskedObservation(env, source)
