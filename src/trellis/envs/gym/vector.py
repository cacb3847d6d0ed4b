"""Vector environments that exist already (Gymnasium's `vector_entry_point`) as batches.

They reset in one of three ways (`metadata["autoreset_mode"]`); ours never resets by itself.

- DISABLED: `reset` takes a mask and a seed per row. Nothing is lost, and it is taken unasked.
- SAME_STEP: the step that ends an episode returns the first observation of the next one, and the
  final one in `info["final_obs"]`. The two change places here; `reset` then hands out what was
  kept. Where an episode starts is the vector environment's own choice, so the seed of a single row
  cannot be honoured.
- NEXT_STEP: the step after an end ignores its action and resets. A row cannot be reset while its
  neighbours stand still, so only whole batches can.

Where seeds cannot be honoured the vector environment is used if it is asked for, never unasked;
an id that has nothing else becomes one vector environment of one row for each row (`VectorRow`).
No vector environment can hold a row still: one that was not active for a step has moved on, and
must be reset before it is active again.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from trellis.envs.batch import (
    BadShapeError,
    BadValueError,
    BatchEnv,
    EnvRaisedError,
    Observation,
    Step,
)
from trellis.envs.gym.border import (
    MismatchError,
    ObservationBorder,
    OutOfSpaceError,
    check_action_space,
)


def make_vector(
    env_id: str, spec: EnvSpec, num_envs: int, *, insist: bool, **kwargs: Any
) -> BatchEnv | None:
    """The vector environment of this id as a batch; None where one object per row is better."""
    entry_point = spec.vector_entry_point
    if entry_point is None:
        if insist:
            raise ValueError(f"{env_id} has no vector environment of its own: omit vector=True")
        return None
    creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    told = "autoreset_mode" in inspect.signature(creator).parameters
    if not told and not insist and _declared_mode(creator) is not AutoresetMode.DISABLED:
        return None
    make = functools.partial(
        gymnasium.make_vec, env_id, num_envs, vectorization_mode="vector_entry_point"
    )
    disabled: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED} if told else {}
    try:
        env = make(**{**disabled, **kwargs})
    except (TypeError, ValueError):
        # It has no such mode, or the options are those of the single environment.
        if not insist:
            return None
        env = make(**kwargs)
    if not insist and _mode(env) is not AutoresetMode.DISABLED:
        env.close()
        return None
    try:
        return VectorBatch(env, env_id)
    except BaseException:
        env.close()
        raise


class VectorBatch(BatchEnv):
    """A `gymnasium.vector.VectorEnv` whose resets are hidden behind ours."""

    why_not_restorable = (
        "A vector environment keeps all of its rows in one object. Make the batch with"
        " vector=False: one object per row can be restored if it can be copied."
    )

    def __init__(self, env: VectorEnv, env_id: str):
        check_action_space(env.single_action_space, env_id)
        super().__init__(
            env_id, env.num_envs, env.single_observation_space, env.single_action_space
        )
        self.env = env
        self.mode = _mode(env)
        self._border = ObservationBorder(env.single_observation_space)
        self._last = self._border.empty(self.num_envs)
        self._next_first = self._border.empty(self.num_envs)
        # Rows that stand at the first observation of an episode that nobody has asked for yet.
        self._fresh = np.zeros(self.num_envs, bool)
        self._ended = np.zeros(self.num_envs, bool)
        # Rows that have moved on without us and must be reset before they are active.
        self._stale = np.ones(self.num_envs, bool)

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        asked = np.zeros(self.num_envs, bool)
        asked[ids] = True
        if self.mode is AutoresetMode.DISABLED:
            by_row: list[int | None] = [None] * self.num_envs
            for index, seed in zip(ids, seeds, strict=True):
                by_row[index] = int(seed)
            first = self._reset_env(by_row, {"reset_mask": asked})
        elif asked.all():
            self._flush()
            # One seed for the whole: these take no seed per row, but the same seeds repeat.
            whole = int(np.random.SeedSequence(seeds.tolist()).generate_state(1)[0])
            first = self._reset_env(whole, None)
            self._fresh[:] = False
        elif self._fresh[ids].all():
            first, self._fresh[ids] = self._next_first, False
        else:
            raise ValueError(
                f"{self.env_id}: this vector environment resets by itself ({self.mode.value}), so"
                " single rows cannot be reset"
                + (" unless they have just ended" if self.mode is AutoresetMode.SAME_STEP else "")
                + ". Reset all rows together, or make the batch with vector=False."
            )
        self._last = [
            np.where(_over(asked, new), new, old)
            for new, old in zip(first, self._last, strict=True)
        ]
        self._ended[ids] = False
        self._stale[ids] = False
        return self._border.tree([array[ids] for array in self._last])

    def _flush(self) -> None:
        """Lets pending resets of NEXT_STEP happen: some environments keep them past `reset`."""
        if self.mode is AutoresetMode.NEXT_STEP and self._ended.any():
            self.env.step(self.env.action_space.sample())

    def _reset_env(self, seed: Any, options: dict[str, Any] | None) -> list[NDArray[Any]]:
        try:
            observation, _ = self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise self.error(EnvRaisedError, f"reset raised {error!r}") from error
        return self._rows(observation)

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        unusable = active & (self._stale | self._ended)
        if unusable.any():
            raise ValueError(
                f"{self.env_id}: row {int(np.argmax(unusable))} has ended or was left out of a step"
                " and must be reset first; a vector environment cannot hold a row still"
                " (vector=False can)"
            )
        if self.mode is AutoresetMode.DISABLED and self._ended.any():
            # Nobody watches these rows, but the environment must not step past an end.
            self._reset_env([None] * self.num_envs, {"reset_mask": self._ended.copy()})
            self._stale |= self._ended
            self._ended[:] = False
        try:
            answer = self.env.step(np.array(actions, self.action_space.dtype))
        except Exception as error:
            raise self.error(EnvRaisedError, f"step raised {error!r}") from error
        observation, reward, terminated, truncated, info = answer
        arrays = self._rows(observation)
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        ended = terminated | truncated
        # Behind the scenes a row that nobody watches may end as well.
        self._fresh[~active] = False
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            self._next_first = [array.copy() for array in arrays]
            self._fresh |= ended
            self._keep_final(arrays, info, ended)
        self._stale |= ~active & ~self._fresh
        self._ended = ended if self.mode is AutoresetMode.DISABLED else (self._ended | ended)
        for array, last in zip(arrays, self._last, strict=True):
            array[~active] = last[~active]
        self._last = arrays
        reward = np.where(active, np.asarray(reward, np.float64), 0.0)
        tree = self._border.tree(arrays)
        return Step(tree, reward, terminated & active, truncated & active)

    def _keep_final(
        self, arrays: list[NDArray[Any]], info: dict[str, Any], ended: NDArray[np.bool_]
    ) -> None:
        final = info.get("final_obs")
        for index in np.flatnonzero(ended):
            one = None if final is None else _row_of(final, int(index))
            if one is None:
                reason = "the episode ended, but info['final_obs'] does not have its observation"
                raise self.error(BadShapeError, reason, None, int(index))
            self._write(self._border.write, arrays, int(index), one)

    def _write(self, write: Callable[..., None], rows: Any, index: int, value: Any) -> None:
        try:
            write(rows, index, value)
        except MismatchError as error:
            raise self.error(BadShapeError, str(error), None, index) from None
        except OutOfSpaceError as error:
            raise self.error(BadValueError, str(error), None, index) from None

    def _rows(self, observation: Any) -> list[NDArray[Any]]:
        """Copies of the leaves, checked: (num_envs, ...) of the space's dtype."""
        arrays = self._border.empty(self.num_envs)
        try:
            found = self._border.flatten(observation)
        except (KeyError, IndexError, TypeError) as error:
            reason = f"observations do not have the structure of their space: {error!r}"
            raise self.error(BadShapeError, reason) from None
        for leaf, rows, value in zip(self._border.leaves, arrays, found, strict=True):
            value = np.asarray(value)
            if value.shape != rows.shape:
                reason = f"{leaf.name} has shape {value.shape}, its space says {rows.shape}"
                raise self.error(BadShapeError, reason)
            if value.dtype == leaf.dtype and leaf.holds(value):
                rows[...] = value
                continue
            for index in range(self.num_envs):
                self._write(leaf.write, rows, index, value[index])
        return arrays

    def render(self, index: int) -> NDArray[np.uint8]:
        """A picture of row `index`, (height, width, 3)."""
        frames = self.env.render()
        if frames is None:
            raise ValueError(f"make {self.env_id} with render_mode='rgb_array' to have pictures")
        return np.array(frames[index], np.uint8)

    def close(self) -> None:
        """Closes the vector environment."""
        self.env.close()


class VectorRow(gymnasium.Env):
    """A vector environment of one row as a plain environment, for ids that have nothing else."""

    def __init__(self, env: VectorEnv):
        self.batch = VectorBatch(env, env.spec.id if env.spec is not None else "vector")
        self.observation_space = self.batch.observation_space
        self.action_space = self.batch.action_space
        self.render_mode = env.render_mode
        self.spec = env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """As Gymnasium has it; without a seed, one from this environment's own generator."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        return self._row(self.batch.reset(np.array([0]), np.array([seed]))), {}

    def step(self, action: Any):
        """As Gymnasium has it."""
        # Not `batch.step`: the action is in the environment's terms already.
        step = self.batch._step(np.asarray(action)[None], np.ones(1, bool))
        flags = bool(step.terminated[0]), bool(step.truncated[0])
        return self._row(step.observation), float(step.reward[0]), *flags, {}

    def render(self):
        """As Gymnasium has it."""
        return self.batch.render(0)

    def close(self) -> None:
        """As Gymnasium has it."""
        self.batch.close()

    def _row(self, observation: Any) -> Any:
        return _row_of(observation, 0)


def _declared_mode(creator: Any) -> AutoresetMode | None:
    return getattr(creator, "metadata", {}).get("autoreset_mode")


def _mode(env: VectorEnv) -> AutoresetMode:
    # NEXT_STEP is what Gymnasium 1.0 did before there was a word for it.
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def _over(mask: NDArray[np.bool_], array: NDArray[Any]) -> NDArray[np.bool_]:
    return mask.reshape(-1, *[1] * (array.ndim - 1))


def _row_of(batched: Any, index: int) -> Any:
    """Row `index` of observations that come as an object array, a Dict or a Tuple of arrays."""
    if isinstance(batched, dict):
        return {key: _row_of(value, index) for key, value in batched.items()}
    if isinstance(batched, tuple):
        return tuple(_row_of(value, index) for value in batched)
    return batched[index]
