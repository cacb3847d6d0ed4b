"""Translates Gymnasium's own functional environments (`gymnasium.experimental.functional.FuncEnv`).

Any `FuncEnv` that is written in JAX works: `TRPO(GymnasiumFuncEnv(env, max_episode_steps=500))`.
"""

from typing import Any

import jax
from gymnasium.experimental.functional import FuncEnv

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition


class GymnasiumFuncEnv(FunctionalEnv):
    """A `FuncEnv` of Gymnasium.

    Args:
        env: The environment.
        max_episode_steps: Time limit; None for none.
    """

    def __init__(self, env: FuncEnv, max_episode_steps: int | None = None):
        self._env = env
        self.max_episode_steps = max_episode_steps
        self.observation_space, self.action_space = env.observation_space, env.action_space

    @property
    def env_id(self) -> str:
        """Name of the environment's class."""
        return type(self._env).__name__

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        start, see = jax.random.split(key)
        params = self._env.default_params
        state = self._env.initial(start, params)
        return state, self._env.observation(state, see, params)

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        env, params = self._env, self._env.default_params
        move, see, earn, end = jax.random.split(key, 4)
        new = env.transition(state, action, move, params)
        observation = env.observation(new, see, params)
        reward = env.reward(state, action, new, earn, params)
        return Transition(new, observation, reward, env.terminal(new, end, params))


def make_phys2d(name: str, **options: Any) -> GymnasiumFuncEnv:
    """Return Gymnasium's cart-pole or pendulum; options are their parameters."""
    from gymnasium.envs.phys2d import cartpole, pendulum

    classes = {
        "CartPole-v0": (cartpole.CartPoleFunctional, 200),
        "CartPole-v1": (cartpole.CartPoleFunctional, 500),
        "Pendulum-v0": (pendulum.PendulumFunctional, 200),
    }
    if name not in classes:
        raise KeyError(name, classes)
    kind, limit = classes[name]
    env: Any = kind()
    env.default_params = env.get_default_params(**options)
    return GymnasiumFuncEnv(env, limit)
