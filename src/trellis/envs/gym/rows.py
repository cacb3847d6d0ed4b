"""One `gymnasium.Env` per row, in this process: the plainest batch, and the one with every check.

What an environment returns is checked and copied at the border (`gym_border.py`); how its state is
taken and put back is found out when the batch is made (`gym_state.py`).
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import (
    BadShapeError,
    BadValueError,
    BatchEnv,
    EnvError,
    EnvRaisedError,
    Observation,
    Rows,
    Step,
)
from trellis.envs.gym.border import (
    MismatchError,
    ObservationBorder,
    OutOfSpaceError,
    check_action_space,
    check_flag,
    check_number,
)
from trellis.envs.gym.state import find_method, reseed


class GymBatch(BatchEnv):
    """One `gymnasium.Env` per row, stepped one after the other.

    After an `EnvError` rows before the faulty one have moved and the others have not: reset the
    batch, or close it.
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
            self._begin(max_episode_steps, across_processes)
        except BaseException:
            self._abandon()
            raise

    def _begin(self, max_episode_steps: int | None, across_processes: bool) -> None:
        envs = self.envs
        if not envs:
            raise ValueError("num_envs must be at least 1, got 0")
        first = envs[0]
        if not isinstance(first, gymnasium.Env):
            raise TypeError(
                f"the callable returned a {type(first).__name__}, not a gymnasium.Env; environments"
                " of the old gym package can be wrapped with shimmy"
            )
        if len({id(env) for env in envs}) < len(envs):
            raise ValueError("the callable returned one object twice; each row needs its own")
        spec = first.spec
        env_id = spec.id if spec is not None else type(first.unwrapped).__name__
        check_action_space(first.action_space, env_id)
        for env in envs[1:]:
            if (env.observation_space, env.action_space) != (
                first.observation_space,
                first.action_space,
            ):
                raise ValueError(f"{env_id}: the rows of a batch must have the same spaces")
        if max_episode_steps is None and spec is not None:
            max_episode_steps = spec.max_episode_steps
        super().__init__(
            env_id,
            len(envs),
            first.observation_space,
            first.action_space,
            max_episode_steps=max_episode_steps,
        )
        self._border = ObservationBorder(first.observation_space)
        self._last = self._border.empty(self.num_envs)
        self._method = find_method(first, across_processes=across_processes)
        self.restorability = self._method.restorability
        self.why_not_restorable = self._method.why_not
        self.render_mode = first.render_mode
        self.row_at_work = np.zeros(1, np.int64)
        """The row whose environment has the word; a hung worker is found out by it."""

    def _abandon(self) -> None:
        """Closes what there is of a batch that cannot be made."""
        for env in self.envs:
            with contextlib.suppress(Exception):
                env.close()

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        arrays = [array.copy() for array in self._last]
        for row, index in enumerate(ids.tolist()):
            self.row_at_work[0] = index
            try:
                answer = self.envs[index].reset(seed=int(seeds[row]))
            except Exception as error:
                raise self._raised(error, "reset", index, 0) from error
            if not isinstance(answer, tuple) or len(answer) != 2:
                reason = "reset did not return (observation, info), as Gymnasium 1.x asks"
                raise self._fault(BadShapeError, reason, index, 0)
            self._write(arrays, index, answer[0], 0)
        self._last = arrays
        return self._border.tree([array[ids] for array in arrays])

    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step:
        # A fresh copy: environments may keep or change the action that they are given.
        actions = np.array(actions, self.action_space.dtype)
        arrays = [array.copy() for array in self._last]
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        infos: dict[int, Any] = {}
        for index in np.flatnonzero(active).tolist():
            self.row_at_work[0] = index
            step = int(self.elapsed[index]) + 1
            try:
                answer = self.envs[index].step(actions[index])
            except Exception as error:
                raise self._raised(error, "step", index, step) from error
            if not isinstance(answer, tuple) or len(answer) != 5:
                reason = (
                    "step did not return (observation, reward, terminated, truncated, info),"
                    " as Gymnasium 1.x asks"
                )
                raise self._fault(BadShapeError, reason, index, step)
            self._write(arrays, index, answer[0], step)
            try:
                reward[index] = check_number("reward", answer[1])
                terminated[index] = check_flag("terminated", answer[2])
                truncated[index] = check_flag("truncated", answer[3])
            except MismatchError as error:
                raise self._fault(BadShapeError, str(error), index, step) from None
            infos[index] = answer[4]
        self._last = arrays
        self.info = gather_numbers(infos, self.num_envs)
        return Step(self._border.tree(arrays), reward, terminated, truncated)

    def _write(self, arrays: list[NDArray[Any]], index: int, observation: Any, step: int) -> None:
        try:
            self._border.write(arrays, index, observation)
        except MismatchError as error:
            raise self._fault(BadShapeError, str(error), index, step) from None
        except OutOfSpaceError as error:
            raise self._fault(BadValueError, str(error), index, step) from None

    def _snapshot(self, ids: NDArray[np.int64]) -> Rows:
        taken = [self._method.take(self.envs[index]) for index in ids]
        rows: dict[str, NDArray[Any]] = {
            f"observation.{leaf}": array[ids] for leaf, array in enumerate(self._last)
        }
        for name in taken[0] if taken else ():
            shapes = {row[name].shape for row in taken}
            if len(shapes) > 1:
                raise ValueError(
                    f"{self.env_id}: {name} of the state has the shapes {sorted(shapes)} in"
                    " different rows; get_state must give arrays of fixed shapes (pad them)"
                )
            rows[name] = np.stack([row[name] for row in taken])
        return rows

    def _restore(self, ids: NDArray[np.int64], rows: Rows) -> Observation:
        arrays = [array.copy() for array in self._last]
        for leaf, array in enumerate(arrays):
            array[ids] = rows[f"observation.{leaf}"]
        task = {
            name: values
            for name, values in rows.items()
            if name not in ("elapsed", "seed") and not name.startswith("observation.")
        }
        for row, index in enumerate(ids.tolist()):
            # Not values[row]: an object array would hand out the object instead of an array.
            state = {name: values[row, ...] for name, values in task.items()}
            self.envs[index] = self._method.give(self.envs[index], state)
        self._last = arrays
        return self._border.tree([array[ids] for array in arrays])

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        for index, seed in zip(ids, seeds, strict=True):
            reseed(self.envs[index], int(seed))

    def render(self, index: int) -> NDArray[np.uint8]:
        """A picture of row `index`, (height, width, 3)."""
        if self.render_mode != "rgb_array":
            raise ValueError(
                f"{self.env_id} was made with render_mode={self.render_mode!r};"
                " make it with render_mode='rgb_array' to have pictures"
            )
        return np.array(self.envs[index].render(), np.uint8)

    def close(self) -> None:
        """Closes every row, also after one of them raised; then says which did."""
        if self._closed:
            return
        self._closed = True
        faults = []
        for index, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:
                faults.append((index, error))
        for index, error in faults:
            raise self._raised(error, "close", index, int(self.elapsed[index])) from error

    def _raised(self, error: Exception, where: str, index: int, step: int) -> EnvError:
        reason = f"{where} raised {type(error).__name__}: {error}"
        return self._fault(EnvRaisedError, reason, index, step)

    def _fault(self, kind: type[EnvError], reason: str, index: int, step: int) -> EnvError:
        seed = int(self.seeds[index])
        return kind(
            reason,
            env_id=self.env_id,
            index=index,
            step=step,
            seed=None if seed < 0 else seed,
        )


def gather_numbers(infos: dict[int, Any], num_envs: int) -> dict[str, NDArray[Any]]:
    """The numbers among what the rows reported, a row per environment; NaN where there is none."""
    gathered: dict[str, NDArray[Any]] = {}
    for index, info in infos.items():
        for name, value in info.items() if isinstance(info, dict) else ():
            if isinstance(value, int | float | np.integer | np.floating | np.bool_):
                rows = gathered.get(name)
                if rows is None:
                    rows = gathered[name] = np.full(num_envs, np.nan)
                rows[index] = value
    return gathered
