"""Small environments in JAX whose every number is known, for tests of what runs them."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Transition


class Walk(FunctionalEnv):
    """A random walk on a line: an action pushes, chance too; it ends beyond ±3.

    The reset returns weakly typed numbers, as some suites do.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)
    max_episode_steps = 25

    def reset(self, key):
        position = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        state = {"position": position, "pushes": 0}
        return state, self._observe(state)

    def step(self, key, state, action):
        wind = 0.3 * jax.random.normal(key)
        position = state["position"] + 0.5 * (action - 1.0) + wind
        state = {"position": position, "pushes": state["pushes"] + (action != 1)}
        reward = 1.0 - jnp.abs(position)
        return Transition(state, self._observe(state), reward, jnp.abs(position) > 3.0)

    def _observe(self, state):
        return jnp.stack([state["position"], 0.1 * state["pushes"]])


class Drift(FunctionalEnv):
    """A point with inertia, a Box of actions and a Dict of observations, four at a time."""

    observation_space = spaces.Dict(
        {
            "near": spaces.MultiBinary(2),
            "where": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        }
    )
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    max_episode_steps = 12
    width = 4

    def reset(self, key):
        where = jax.random.normal(key, (2,))
        state = (where, jnp.zeros(2))
        return state, self._observe(state)

    def step(self, key, state, action):
        where, speed = state
        speed = 0.9 * speed + 0.1 * action + 0.01 * jax.random.normal(key, (2,))
        state = (where + speed, speed)
        far = jnp.max(jnp.abs(state[0])) > 4.0
        return Transition(state, self._observe(state), -jnp.sum(jnp.abs(state[0])), far)

    def _observe(self, state):
        return {"near": jnp.abs(state[0]) < 1.0, "where": state[0]}


class Balance(FunctionalEnv):
    """A one-dimensional balancing act that a linear policy solves; it has no chance."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 40

    def reset(self, key):
        state = jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)
        return state, state

    def step(self, key, state, action):
        x, v = state
        v = v + 0.1 * (x + 2.0 * action[0])
        state = jnp.stack([x + 0.1 * v, v])
        return Transition(state, state, 1.0 - x * x, jnp.abs(state[0]) > 2.0)


class Cards(FunctionalEnv):
    """Play one of the cards in hand until none is left; the state holds a key with a type."""

    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(0.0, 1.0, (4,), np.float32),
            "action_mask": spaces.MultiBinary(4),
        }
    )
    action_space = spaces.Discrete(4)

    def reset(self, key):
        hand = jnp.ones(4).at[jax.random.randint(key, (), 0, 4)].set(0.0)
        state = {"hand": hand, "luck": jax.random.key(7)}
        return state, self._observe(state)

    def step(self, key, state, action):
        luck, own = jax.random.split(state["luck"])
        value = jax.random.uniform(own) + jax.random.uniform(key)
        # An illegal move would be worth a lot.
        reward = jnp.where(state["hand"][action] > 0, value, 1e3)
        hand = state["hand"].at[action].set(0.0)
        state = {"hand": hand, "luck": luck}
        return Transition(state, self._observe(state), reward, hand.sum() == 0)

    def _observe(self, state):
        return {"observation": 0.5 * state["hand"], "action_mask": state["hand"]}


class Stuck(Cards):
    """A game that does not end when no card is left."""

    def step(self, key, state, action):
        return super().step(key, state, action)._replace(terminated=False)
