"""Translates environments of brax and of MuJoCo Playground, which share their functions.

The raw environments have one flag, `done`, which means termination. Their time limit belongs to a
training wrapper whose autoreset discards the final observation. Here the batch applies the limit.
"""

from typing import Any

import jax
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition
from trellis.envs.jax.suite_spaces import as_dict, shape_of_reset, space_of

WIDTH = 64
"""Number of environments that are compiled together: rounding depends on it."""
EPISODE = 1000
"""Time limit of brax's training wrapper."""


class BraxEnv(FunctionalEnv):
    """An environment of brax or of MuJoCo Playground.

    Args:
        env: The environment, without wrappers.
        max_episode_steps: Time limit.
    """

    width = WIDTH

    def __init__(self, env: Any, max_episode_steps: int):
        self._env = env
        self.max_episode_steps = max_episode_steps
        state = shape_of_reset(env.reset)
        self.observation_space = space_of(as_dict(state.obs))
        self.action_space = spaces.Box(-1.0, 1.0, (env.action_size,))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        state = self._env.reset(key)
        return state, as_dict(state.obs)

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        if "rng" in state.info:  # The environment's own stream; ours can be reseeded.
            state = state.replace(info={**state.info, "rng": key})
        state = self._env.step(state, action)
        return Transition(state, as_dict(state.obs), state.reward, state.done > 0.5)


def make_brax(name: str, **options: Any) -> BraxEnv:
    """Return an environment of brax, by default with the spring backend."""
    from brax import envs

    known = envs._envs
    if name not in known:
        raise KeyError(name, known)
    return BraxEnv(envs.get_environment(name, **{"backend": "spring", **options}), EPISODE)


def make_playground(name: str, **options: Any) -> BraxEnv:
    """Return an environment of MuJoCo Playground, by default with the JAX implementation of MJX."""
    from mujoco_playground import registry

    if name not in registry.ALL_ENVS:
        raise KeyError(name, registry.ALL_ENVS)
    config: Any = registry.get_default_config(name)
    env = registry.load(name, config, config_overrides={"impl": "jax", **options})
    return BraxEnv(env, int(config.episode_length))
