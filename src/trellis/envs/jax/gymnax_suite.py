"""Translates environments of gymnax and craftax, which share their functions.

`reset_env` and `step_env` are the functions without autoreset. A flag `done` that includes the time
limit is computed again without the limit, so that truncation is not mistaken for termination.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition
from trellis.envs.jax.suite_spaces import box, shape_of_reset, space_of
from trellis.spaces import Space

LIMITS = ("max_steps_in_episode", "max_timesteps")
"""Names of the time limit in the parameters of gymnax and of craftax."""
NO_LIMIT = int(np.iinfo(np.int32).max)


class GymnaxEnv(FunctionalEnv):
    """An environment of gymnax or craftax.

    Args:
        env: The environment.
        params: Its parameters.
    """

    def __init__(self, env: Any, params: Any):
        self._env, self._params = env, params
        names = {field.name for field in dataclasses.fields(params)}
        limit = next((name for name in LIMITS if name in names), None)
        self._unlimited = params if limit is None else params.replace(**{limit: NO_LIMIT})
        # From version 1.0 on, `done` of gymnax does not include the time limit.
        self._done_is_final = limit is None or hasattr(env, "is_truncated")
        self.max_episode_steps = None if limit is None else int(getattr(params, limit))
        observation, _ = shape_of_reset(lambda key: env.reset_env(key, params))
        self.observation_space = space_of(observation)
        self.action_space = _action_space(env.action_space(params))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        observation, state = self._env.reset_env(key, self._params)
        return state, observation

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        observation, state, reward, done, _ = self._env.step_env(key, state, action, self._params)
        if not self._done_is_final:
            done = self._env.is_terminal(state, self._unlimited)
        return Transition(state, observation, reward, done)


def make_gymnax(name: str, **options: Any) -> GymnaxEnv:
    """Return an environment of gymnax; options that are parameters replace their defaults."""
    import gymnax

    suite: Any = gymnax
    known = suite.registered_envs
    if name not in known:
        raise KeyError(name, known)
    _, params = suite.make(name)
    fields = {field.name for field in dataclasses.fields(params)}
    changes = {key: options.pop(key) for key in list(options) if key in fields}
    env, params = suite.make(name, **options)
    return GymnaxEnv(env, params.replace(**changes))


def make_craftax(name: str, **options: Any) -> GymnaxEnv:
    """Return an environment of craftax; options replace its parameters."""
    from craftax.craftax_env import make_craftax_env_from_name

    try:
        env: Any = make_craftax_env_from_name(name, auto_reset=False)
    except ValueError:
        raise KeyError(name, ()) from None
    return GymnaxEnv(env, env.default_params.replace(**options))


def _action_space(space: Any) -> Space:
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    return box(space.low, space.high, tuple(np.atleast_1d(np.empty(space.shape)).shape))
