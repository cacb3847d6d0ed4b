"""Runs one `gymnasium.Env` object for each environment of a batch, in this process.

`answers.py` checks and copies what an environment returns. When the batch is created, `state.py`
finds a way to capture and restore its state.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv, Observation, Snapshot, Step
from trellis.envs.errors import EnvError, EnvRaisedError
from trellis.envs.gym.answers import (
    InvalidAnswerError,
    ObservationArrays,
    check_action_space,
    check_parts,
    check_step,
)
from trellis.envs.gym.state import find_method, reseed


class GymBatch(BatchEnv):
    """Batch of `gymnasium.Env` objects, stepped one after the other.

    After an `EnvError`, the environments before the faulty one have been stepped and the others
    have not: reset the batch, or close it.

    Args:
        factories: Functions that return the environments.
        max_episode_steps: Time limit; None for that of the environments' registration.
        across_processes: Whether snapshots must be able to travel to another process.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], gymnasium.Env]],
        *,
        max_episode_steps: int | None = None,
        across_processes: bool = False,
    ):
        self.envs: list[gymnasium.Env] = []
        self._closed = False
        try:
            for factory in factories:
                self.envs.append(factory())
            self._init(max_episode_steps, across_processes)
        except BaseException:
            for env in self.envs:
                with contextlib.suppress(Exception):
                    env.close()
            raise

    def _init(self, limit: int | None, across_processes: bool) -> None:
        envs = self.envs
        if not envs:
            raise ValueError("num_envs must be at least 1, got 0")
        first = envs[0]
        if not isinstance(first, gymnasium.Env):
            raise TypeError(
                f"the callable must return a gymnasium.Env, got {type(first).__name__}; wrap"
                " environments of the old gym package with shimmy"
            )
        if len({id(env) for env in envs}) < len(envs):
            raise ValueError(
                "the callable returned the same object twice: it must return a new environment in"
                " every call"
            )
        spec = first.spec
        env_id = spec.id if spec is not None else type(first.unwrapped).__name__
        observation_space, action_space = first.observation_space, first.action_space
        check_action_space(action_space, env_id)
        for env in envs[1:]:
            if (env.observation_space, env.action_space) != (observation_space, action_space):
                raise ValueError(f"{env_id}: all environments of a batch must have the same spaces")
        if limit is None and spec is not None:
            limit = spec.max_episode_steps
        super().__init__(
            env_id, len(envs), observation_space, action_space, max_episode_steps=limit
        )
        self._observations = ObservationArrays(observation_space)
        self._last = self._observations.empty(self.num_envs)
        method = find_method(first, across_processes=across_processes)
        if isinstance(method, str):
            self.why_not_restorable = method
        else:
            self.restorability, self._capture_env, self._restore_env = method
        self.render_mode = first.render_mode
        self.current = np.zeros(1, np.int64)
        """Index of the environment that is running, for errors about a worker that hangs."""

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        arrays = [array.copy() for array in self._last]
        for index, seed in zip(ids.tolist(), seeds.tolist(), strict=True):
            self.current[0] = index
            try:
                answer = self.envs[index].reset(seed=seed)
                check_parts("reset", answer, ("observation", "info"))
                self._observations.write(arrays, index, answer[0])
            except InvalidAnswerError as error:
                raise self.error(error.kind, str(error), index, 0) from None
            except Exception as error:
                raise self._raised(error, "reset", index, 0) from error
        self._last = arrays
        return self._observations.tree([array[ids] for array in arrays])

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        # A new copy, because environments may keep or change the action that they get.
        actions = np.array(actions, self.action_space.dtype)
        arrays = [array.copy() for array in self._last]
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        infos: dict[int, Any] = {}
        for index in np.flatnonzero(active).tolist():
            self.current[0] = index
            step = int(self.elapsed[index]) + 1
            try:
                answer = self.envs[index].step(actions[index])
                observation, *outcome, infos[index] = check_step(answer)
                self._observations.write(arrays, index, observation)
            except InvalidAnswerError as error:
                raise self.error(error.kind, str(error), index, step) from None
            except Exception as error:
                raise self._raised(error, "step", index, step) from error
            reward[index], terminated[index], truncated[index] = outcome
        self._last = arrays
        self.info = gather_numbers(infos, self.num_envs)
        return Step(self._observations.tree(arrays), reward, terminated, truncated)

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        states = [self._capture_env(self.envs[index]) for index in ids]
        snapshot = {f"observation.{leaf}": array[ids] for leaf, array in enumerate(self._last)}
        for name in states[0] if states else ():
            shapes = {state[name].shape for state in states}
            if len(shapes) > 1:
                raise ValueError(
                    f"{self.env_id}: {name} of the state has different shapes {sorted(shapes)} in"
                    " different environments: get_state must return arrays of fixed shapes (pad"
                    " them)"
                )
            snapshot[name] = np.stack([state[name] for state in states])
        return snapshot

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        arrays = [array.copy() for array in self._last]
        for leaf, array in enumerate(arrays):
            array[ids] = snapshot[f"observation.{leaf}"]
        for row, index in enumerate(ids.tolist()):
            # Not values[row], because an object array would return the object, not an array.
            state = {name: values[row, ...] for name, values in snapshot.items()}
            self.envs[index] = self._restore_env(self.envs[index], state)
        self._last = arrays
        return self._observations.tree([array[ids] for array in arrays])

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        for index, seed in zip(ids, seeds, strict=True):
            reseed(self.envs[index], int(seed))

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3)."""
        if self.render_mode != "rgb_array":
            raise ValueError(
                f"{self.env_id} was created with render_mode={self.render_mode!r}: create it with"
                " render_mode='rgb_array' to render pictures"
            )
        return np.array(self.envs[index].render(), np.uint8)

    def close(self) -> None:
        """Close every environment, even if one of them raises; then raise the first error."""
        if self._closed:
            return
        self._closed = True
        errors = []
        for index, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:
                errors.append((index, error))
        for index, error in errors:
            raise self._raised(error, "close", index) from error

    def _raised(
        self, error: Exception, method: str, index: int, step: int | None = None
    ) -> EnvError:
        reason = f"{method} raised {type(error).__name__}: {error}"
        return self.error(EnvRaisedError, reason, index, step)


def gather_numbers(infos: dict[int, Any], num_envs: int) -> dict[str, NDArray[Any]]:
    """Return the numbers that environments reported, as arrays with NaN where one is missing."""
    gathered: dict[str, NDArray[Any]] = {}
    for index, info in infos.items():
        for name, value in info.items() if isinstance(info, dict) else ():
            if isinstance(value, int | float | np.integer | np.floating | np.bool_):
                if name not in gathered:
                    gathered[name] = np.full(num_envs, np.nan)
                gathered[name][index] = value
    return gathered
