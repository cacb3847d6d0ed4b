"""Steps many copies of a `FunctionalEnv` together, as pure functions of `Rows`.

`Rows` is everything that the future of a batch depends on. `RowFunctions` resets some rows and
steps all of them. `JaxBatch` compiles these functions one by one, and the compiled sampler uses
them inside its scan, so both give the same bits.

The key of a step is a function of the row's key and of the number of steps since the reset.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Int, Shaped, UInt32
from numpy.typing import NDArray

from trellis.envs.jax.functional import FunctionalEnv, cast_like
from trellis.spaces import Observation, Space

RESET = np.uint32(0xFFFFFFFF)
"""Number that stands for the reset where others stand for a step of the episode."""


class Rows(NamedTuple):
    """State of a batch of environments: arrays whose first axis is the environment."""

    state: Any
    """States of the environments."""
    observation: Observation
    """Observations of the environments at present."""
    key: UInt32[jax.Array, "env 2"]
    """Keys of the episodes."""
    elapsed: Int[jax.Array, " env"]
    """Number of steps since the reset."""


class RowStep(NamedTuple):
    """Result of a step of all rows."""

    reward: Shaped[jax.Array, " env"]
    """Rewards of the step."""
    terminated: Bool[jax.Array, " env"]
    """Whether the step ended the episode in a terminal state."""
    truncated: Bool[jax.Array, " env"]
    """Whether the step ended the episode early, for example at the time limit."""


class RowFunctions:
    """Pure functions that reset and step a batch of a `FunctionalEnv`.

    Functions of the same environment and time limit are equal, so that programs which were compiled
    for one batch serve the next one.

    Args:
        env: The environment.
        max_episode_steps: Time limit; None for no limit.
    """

    def __init__(self, env: FunctionalEnv, max_episode_steps: int | None):
        self.env, self.max_episode_steps = env, max_episode_steps
        state, observation = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), np.uint32))
        self._state_types = state
        self._observation_types = jax.tree.map(
            lambda leaf, dtype: jax.ShapeDtypeStruct(leaf.shape, dtype),
            observation,
            space_dtypes(env.observation_space),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowFunctions):
            return False
        return self.env is other.env and self.max_episode_steps == other.max_episode_steps

    def __hash__(self) -> int:
        return hash((id(self.env), self.max_episode_steps))

    def empty(self, num_envs: int) -> Rows:
        """Return rows of zeros; every row must be reset before it is used."""

        def zeros(leaf: Any) -> jax.Array:
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                keys = jax.random.split(jax.random.key(0), num_envs)
                return jnp.broadcast_to(keys, (num_envs, *leaf.shape))
            return jnp.zeros((num_envs, *leaf.shape), leaf.dtype)

        types = self._state_types, self._observation_types
        state, observation = jax.tree.map(zeros, types)
        count = jnp.zeros(num_envs, jnp.int32)
        return Rows(state, observation, jnp.zeros((num_envs, 2), jnp.uint32), count)

    def reset(self, rows: Rows, chosen: Bool[jax.Array, " env"], key: jax.Array) -> Rows:
        """Start new episodes with these keys in the rows that are chosen."""

        def reset_one(key: jax.Array) -> tuple[Any, Observation]:
            return self._cast(*self.env.reset(jax.random.fold_in(key, RESET)))

        def reset_all(old: Rows, chosen: jax.Array, key: jax.Array) -> Rows:
            state, observation = jax.vmap(reset_one)(key)
            return select(chosen, Rows(state, observation, key, jnp.zeros_like(old.elapsed)), old)

        def reset_if_any(old: Rows, chosen: jax.Array, key: jax.Array) -> Rows:
            # A reset of all rows may cost more than a step, so it is skipped if none is chosen.
            keep = lambda old, chosen, key: old  # noqa: E731
            return jax.lax.cond(jnp.any(chosen), reset_all, keep, old, chosen, key)

        return self._in_chunks(reset_if_any, rows, chosen, key)

    def step(self, rows: Rows, action: jax.Array) -> tuple[Rows, RowStep]:
        """Advance all rows by one step, with actions of the environment's action space."""

        def step_one(rows: Rows, action: jax.Array) -> tuple[Rows, RowStep]:
            state, _, key, elapsed = rows
            moved = self.env.step(jax.random.fold_in(key, elapsed), state, action)
            state, observation = self._cast(moved.state, moved.observation)
            elapsed = elapsed + 1
            truncated = jnp.asarray(moved.truncated, bool)
            if self.max_episode_steps is not None:
                truncated = truncated | (elapsed >= self.max_episode_steps)
            reward = jnp.asarray(moved.reward, jnp.float32)
            ends = RowStep(reward, jnp.asarray(moved.terminated, bool), truncated)
            return Rows(state, observation, key, elapsed), ends

        return self._in_chunks(jax.vmap(step_one), rows, action)

    def step_active(
        self, rows: Rows, action: jax.Array, active: Bool[jax.Array, " env"]
    ) -> tuple[Rows, RowStep]:
        """Advance the active rows by one step; the others keep their state, with reward 0."""
        moved, ends = self.step(rows, action)
        no = jnp.zeros_like(active)
        idle = RowStep(jnp.zeros_like(ends.reward), no, no)
        return select(active, moved, rows), select(active, ends, idle)

    def reseed(self, rows: Rows, key: UInt32[jax.Array, "env 2"]) -> Rows:
        """Give all rows new keys without changing their states."""
        return rows._replace(key=key)

    def _cast(self, state: Any, observation: Observation) -> tuple[Any, Observation]:
        observation = cast_like(observation, self._observation_types)
        return cast_like(state, self._state_types), observation

    def _in_chunks(self, function: Callable[..., Any], *rows: Any) -> Any:
        """Apply a function to rows, `width` at a time if the environment has a width."""
        width = self.env.width
        if width is None:
            return function(*rows)
        count = len(jax.tree.leaves(rows)[0])
        missing = -count % width
        pieces = (count + missing) // width

        def cut(leaf: jax.Array) -> jax.Array:
            filler = jnp.broadcast_to(leaf[:1], (missing, *leaf.shape[1:]))
            return jnp.concatenate([leaf, filler]).reshape(pieces, width, *leaf.shape[1:])

        chunks = jax.lax.map(lambda chunk: function(*chunk), jax.tree.map(cut, rows))
        whole = pieces * width
        return jax.tree.map(lambda leaf: leaf.reshape(whole, *leaf.shape[2:])[:count], chunks)


def select(chosen: Bool[jax.Array, " env"], new: Any, old: Any) -> Any:
    """Return the rows of `new` that are chosen and the other rows of `old`."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(chosen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)


def keys_of(seeds: NDArray[np.integer]) -> NDArray[np.uint32]:
    """Return the raw keys of seeds below 2⁶⁴, (n, 2), like `jax.random.PRNGKey` of each."""
    words = np.asarray(seeds, np.int64).astype(np.uint64)
    return np.stack([words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)], axis=-1).astype(
        np.uint32
    )


def space_dtypes(space: Space) -> Any:
    """Return the data types of a space, with the structure of its observations."""
    if isinstance(space, spaces.Dict):
        return {name: space_dtypes(part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(space_dtypes(part) for part in space.spaces)
    dtype = np.dtype(space.dtype)
    # JAX has 32 bits by default; an integer of 64 bits is one of 32 there.
    return jax.dtypes.canonicalize_dtype(dtype)
