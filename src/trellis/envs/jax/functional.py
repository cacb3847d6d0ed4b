"""Defines `FunctionalEnv`, the contract of environments that are written in JAX.

A `FunctionalEnv` describes one environment as two pure functions, without autoreset:

    reset(key)               → state, observation
    step(key, state, action) → state, observation, reward, terminated, truncated

The state is a pytree of arrays. All randomness comes from the keys, so an episode is a function of
its keys and its actions. `trellis.envs.jax.batch.JaxBatch` makes a batch of it, with snapshots. One
module per suite (gymnax, brax, …) translates the functions of that suite.
"""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trellis.spaces import Space

Key = jax.Array
"""A raw key of two uint32 words. Some suites do not accept typed keys."""
State = Any
"""State of one environment: a pytree of arrays."""


class Transition(NamedTuple):
    """Result of a step of one environment."""

    state: State
    """State after the step."""
    observation: Any
    """Observation after the step, of the observation space."""
    reward: jax.Array
    """Reward of the step, a scalar."""
    terminated: jax.Array
    """Whether the step ended the episode in a terminal state."""
    truncated: jax.Array | bool = False
    """Whether the step ended the episode early, besides `max_episode_steps`."""


class FunctionalEnv(abc.ABC):
    """One environment as pure functions that JAX can compile.

    Subclasses set the attributes, in the class or in `__init__`, and implement `reset` and `step`.
    `TRPO(YourEnv())` trains on it.

    Example:
        >>> from gymnasium import spaces
        >>> class Walk(FunctionalEnv):
        ...     observation_space = spaces.Box(-10.0, 10.0, (1,))
        ...     action_space = spaces.Discrete(2)
        ...     max_episode_steps = 20
        ...     def reset(self, key):
        ...         state = jax.random.uniform(key, (1,))
        ...         return state, state
        ...     def step(self, key, state, action):
        ...         state = state + jnp.where(action == 1, 1.0, -1.0)
        ...         return Transition(state, state, -jnp.abs(state[0]), jnp.abs(state[0]) > 9)
        >>> state, observation = Walk().reset(jax.random.PRNGKey(0))
        >>> observation.shape
        (1,)
    """

    observation_space: Space
    """Observation space. Observations are cast to its data type."""
    action_space: Space
    """Action space. `step` gets actions that it contains."""
    max_episode_steps: int | None = None
    """Time limit, after which the batch truncates an episode; None for no limit."""
    own_limit: int | None = None
    """Largest time limit that a batch may have, because later the environment itself ends the
    episode; None if it does not."""
    width: int | None = None
    """Number of environments that are compiled together; None for the whole batch.

    Set it if the rounding of a step depends on the size of the batch, as that of physics does. Then
    batches of every size give the same bits.
    """

    @property
    def env_id(self) -> str:
        """Id of the environment, for messages and run folders."""
        return type(self).__name__

    @abc.abstractmethod
    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""

    @abc.abstractmethod
    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""


def cast_like(tree: Any, like: Any) -> Any:
    """Return a pytree with the data types of another one, and without weak types.

    Some suites return Python numbers from reset and arrays from step. Their types would differ
    between the first call of a compiled function and the second, which would compile it again.
    """

    def cast(leaf: Any, target: Any) -> jax.Array:
        if jnp.issubdtype(target.dtype, jax.dtypes.prng_key):
            return leaf
        return jax.lax.convert_element_type(jnp.asarray(leaf), target.dtype)

    return jax.tree.map(cast, tree, like)
