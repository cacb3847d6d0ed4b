"""Runs a `FunctionalEnv` as a `BatchEnv`, with snapshots that are plain arrays.

Every call is a compiled program over all environments of the batch: a reset of some environments
resets all of them and keeps the chosen ones. So each program is compiled once. A snapshot holds the
leaves of the state, the observation and the key, which is everything that the future depends on.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Restorability, Snapshot, Step
from trellis.envs.jax.functional import FunctionalEnv
from trellis.envs.jax.rows import RowFunctions, Rows, RowStep, keys_of
from trellis.spaces import Observation


class JaxBatch(BatchEnv):
    """Batch of a `FunctionalEnv`.

    Args:
        env: The environment.
        num_envs: Size of the batch.
        env_id: Id of the environment; by default the environment's own.
        max_episode_steps: Time limit; "default" for the environment's own, None or -1 for no limit.

    Example:
        >>> from trellis.envs.jax.functional import FunctionalEnv, Transition
        >>> from gymnasium import spaces
        >>> class Coin(FunctionalEnv):
        ...     observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
        ...     def reset(self, key):
        ...         return jnp.zeros(()), jnp.zeros((), int)
        ...     def step(self, key, state, action):
        ...         side = jax.random.bernoulli(key).astype(int)
        ...         return Transition(state, side, (side == action).astype(float), True)
        >>> batch = JaxBatch(Coin(), 2)
        >>> _ = batch.reset(np.arange(2), np.array([5, 6]))
        >>> batch.step(np.array([0, 1])).terminated.tolist()
        [True, True]
    """

    restorability = Restorability.SERIALIZABLE

    def __init__(
        self,
        env: FunctionalEnv,
        num_envs: int,
        *,
        env_id: str | None = None,
        max_episode_steps: int | str | None = "default",
    ):
        limit = env.max_episode_steps if max_episode_steps == "default" else max_episode_steps
        assert not isinstance(limit, str)
        super().__init__(
            env_id or env.env_id,
            num_envs,
            env.observation_space,
            env.action_space,
            max_episode_steps=limit,
        )
        self._require_limit(env.own_limit)
        self.functions = RowFunctions(env, self.max_episode_steps)
        self._rows = self.functions.empty(num_envs)

    def _require_limit(self, own: int | None) -> None:
        """Raise a ValueError if the environment itself would end episodes before the batch."""
        limit = self.max_episode_steps
        if own is not None and (limit is None or limit > own):
            raise ValueError(
                f"max_episode_steps of {self.env_id} must be at most {own}, after which the"
                f" environment itself ends the episode, got {limit or 'no limit'}; to move that"
                " end, set an option of the environment, such as time_limit"
            )

    @property
    def rows(self) -> Rows:
        """Everything that the future of the batch depends on, on the device."""
        return self._rows._replace(elapsed=jnp.asarray(self.elapsed, jnp.int32))

    @rows.setter
    def rows(self, rows: Rows) -> None:
        self._rows = rows
        self.elapsed[:] = np.asarray(rows.elapsed)
        words = np.asarray(rows.key).astype(np.int64)
        self.seeds[:] = (words[:, 0] << 32) | words[:, 1]

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        chosen, every = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, np.int64)
        chosen[ids], every[ids] = True, seeds
        self._rows = _reset_rows(self.functions, self.rows, chosen, keys_of(every))
        return _take(self._rows.observation, ids)

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        self._rows, ends = _step_rows(self.functions, self.rows, np.asarray(actions), active)
        reward, terminated, truncated = (np.array(values) for values in ends)
        observation = jax.tree.map(np.array, self._rows.observation)
        return Step(observation, reward.astype(np.float64), terminated, truncated)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        rows = self._rows
        leaves = jax.tree.leaves((rows.state, rows.observation))
        named = {f"leaf{index}": _plain(leaf) for index, leaf in enumerate(leaves)}
        named["key"] = rows.key
        return {name: np.asarray(values)[ids] for name, values in named.items()}

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        rows = self._rows
        leaves, structure = jax.tree.flatten((rows.state, rows.observation))

        def write(old: jax.Array, new: NDArray[Any]) -> jax.Array:
            values = np.array(_plain(old))
            values[ids] = new
            return _like(values, old)

        parts = [write(leaf, snapshot[f"leaf{index}"]) for index, leaf in enumerate(leaves)]
        state, observation = jax.tree.unflatten(structure, parts)
        self._rows = Rows(state, observation, write(rows.key, snapshot["key"]), rows.elapsed)
        return _take(observation, ids)

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        key = np.array(self._rows.key)
        key[ids] = keys_of(seeds)
        self._rows = self._rows._replace(key=jnp.asarray(key))


@functools.partial(jax.jit, static_argnums=0)
def _reset_rows(functions: RowFunctions, rows: Rows, chosen: Any, key: Any) -> Rows:
    return functions.reset(rows, chosen, key)


@functools.partial(jax.jit, static_argnums=0)
def _step_rows(
    functions: RowFunctions, rows: Rows, action: Any, active: Any
) -> tuple[Rows, RowStep]:
    return functions.step_active(rows, action, active)


def _take(observation: Observation, ids: NDArray[np.int64]) -> Observation:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[ids], observation)


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: jax.Array) -> jax.Array:
    """Return a leaf as an ordinary array; keys of a type become their words."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _like(values: NDArray[Any], leaf: jax.Array) -> jax.Array:
    """Return the leaf that `_plain` would turn into these values."""
    array = jnp.asarray(values)
    return jax.random.wrap_key_data(array) if _is_key(leaf) else array
