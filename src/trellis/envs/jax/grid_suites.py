"""Translates grid worlds: navix and XLand-MiniGrid. Both keep everything in a time step."""

from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition
from trellis.envs.jax.suite_spaces import shape_of_reset, space_of


class NavixEnv(FunctionalEnv):
    """An environment of navix.

    Args:
        env: The environment.
    """

    def __init__(self, env: Any):
        self._env = env
        self.max_episode_steps = int(env.max_steps)
        self.observation_space = space_of(shape_of_reset(env.reset).observation)
        self.action_space = spaces.Discrete(len(env.action_set))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        step = self._env.reset(key)
        return step, step.observation

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        state = state.replace(state=state.state.replace(key=key))
        step = self._env._step(state, action)
        return Transition(step, step.observation, step.reward, step.is_termination())


class XMiniGridEnv(FunctionalEnv):
    """An environment of XLand-MiniGrid.

    Args:
        env: The environment.
        params: Its parameters.
    """

    def __init__(self, env: Any, params: Any):
        self._env, self._params = env, params
        self.max_episode_steps = int(params.max_steps)
        first = shape_of_reset(lambda key: env.reset(params, key))
        self.observation_space = space_of(first.observation)
        self.action_space = spaces.Discrete(int(env.num_actions(params)))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        step = self._env.reset(self._params, key)
        return step, step.observation

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        if hasattr(state.state, "key"):
            state = state.replace(state=state.state.replace(key=key))
        step = self._env.step(self._params, state, action)
        return Transition(step, step.observation, step.reward, step.last() & (step.discount == 0))


class PgxEnv(FunctionalEnv):
    """A single-player game of pgx.

    Args:
        env: The game.
        max_episode_steps: Time limit; None for none.
        has_mask: Whether the actions that are allowed change during the game.
    """

    def __init__(self, env: Any, max_episode_steps: int | None, *, has_mask: bool):
        self._env, self._has_mask = env, has_mask
        self.max_episode_steps = max_episode_steps
        state = shape_of_reset(env.init)
        self.observation_space = space_of(self._observe(state))
        self.action_space = spaces.Discrete(int(state.legal_action_mask.shape[0]))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        state = self._env.init(key)
        return state, self._observe(state)

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        state = self._env.step(state, action, key)
        observation, reward = self._observe(state), jnp.sum(state.rewards)
        return Transition(state, observation, reward, state.terminated, state.truncated)

    def _observe(self, state: Any) -> Any:
        if not self._has_mask:
            return state.observation
        return {"observation": state.observation, "action_mask": state.legal_action_mask}


def make_navix(name: str, **options: Any) -> NavixEnv:
    """Return an environment of navix; options are those of `navix.make`."""
    import navix

    suite: Any = navix
    if name not in suite.registry():
        raise KeyError(name, suite.registry())
    return NavixEnv(suite.make(name, **options))


def make_xminigrid(name: str, **options: Any) -> XMiniGridEnv:
    """Return an environment of XLand-MiniGrid; options are parameters of the environment."""
    import xminigrid

    suite: Any = xminigrid
    known = suite.registered_environments()
    if name not in known:
        raise KeyError(name, known)
    env, params = suite.make(name, **options)
    return XMiniGridEnv(env, params)


MINATAR_LIMIT = 1000
"""Time limit of pgx's MinAtar games, which have none. It is that of gymnax."""


def make_pgx(name: str, **options: Any) -> PgxEnv:
    """Return a single-player game of pgx."""
    import pgx

    suite: Any = pgx
    if name not in suite.available_envs():
        raise KeyError(name, suite.available_envs())
    env: Any = suite.make(name, **options)
    if env.num_players != 1:
        raise ValueError(f"pgx/{name} has {env.num_players} players; only games of one player work")
    minatar = name.startswith("minatar-")
    return PgxEnv(env, MINATAR_LIMIT if minatar else None, has_mask=not minatar)
