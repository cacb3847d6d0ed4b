"""Runs one `gymnasium.Env` object for each environment of a batch, in this process.

`answers.py` checks and copies what an environment returns. When the batch is created, `state.py`
finds a way to capture and restore its state.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.closing import CLOSE_SECONDS, LATER_SECONDS, close_within
from trellis.envs.batch import BatchEnv, Observation, Restorability, Snapshot, Step
from trellis.envs.errors import EnvError, EnvInterrupted, EnvRaisedError, describe
from trellis.envs.guard import Guard
from trellis.envs.gym.answers import (
    InvalidAnswerError,
    ObservationArrays,
    check_action_space,
    check_parts,
    check_reward_space,
    check_step,
    many_rewards,
)
from trellis.envs.gym.copies import BrokenByCopy, ManyRewardsError, repeats
from trellis.envs.gym.masks import MaskedObservation, find_source
from trellis.envs.gym.state import find_method, reseed
from trellis.spaces import row_of

logger = logging.getLogger(__name__)

_never_close: set[str] = set()
"""Ids of environments whose `close` did not return in time; the next ones get less time."""
_broken: list[gymnasium.Env] = []
"""Environments that a copy has broken; they are never deleted."""
_left_out: set[str] = set()
"""Ids of environments for which a message said that a text is left out."""


class GymBatch(BatchEnv):
    """Batch of `gymnasium.Env` objects, stepped one after the other.

    After an `EnvError`, the environments before the faulty one have been stepped and the others
    have not: reset the batch, or close it.

    Args:
        factories: Functions that return the environments.
        max_episode_steps: Time limit; None for that of the environments' registration.
        across_processes: Whether snapshots must be able to travel to another process.
        name: Name of the environment in errors until its own id is known.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], gymnasium.Env]],
        *,
        max_episode_steps: int | None = None,
        across_processes: bool = False,
        name: str = "environment",
    ):
        self.envs: list[gymnasium.Env] = []
        self._closed = False
        # `error` needs these if an environment fails before its spaces are known.
        self.env_id, self.seeds = name, np.full(len(factories), -1)
        self.elapsed = np.zeros(len(factories), np.int64)
        try:
            for index, factory in enumerate(factories):
                with self._running("making it", index):
                    self.envs.append(factory())
            with self._running("trying it out", passes=(ValueError, TypeError)):
                self._init(factories[0] if factories else None, max_episode_steps, across_processes)
        except BaseException:
            for env in self.envs:
                with contextlib.suppress(Exception, SystemExit):
                    close_within(env.close, LATER_SECONDS, name)
            raise

    def _init(
        self,
        factory: Callable[[], gymnasium.Env] | None,
        limit: int | None,
        across_processes: bool,
    ) -> None:
        envs = self.envs
        if not envs or factory is None:
            raise ValueError("num_envs must be at least 1, got 0")
        if not isinstance(envs[0], gymnasium.Env):
            raise TypeError(
                f"the callable must return a gymnasium.Env, got {type(envs[0]).__name__}; wrap"
                " environments of the old gym package with shimmy"
            )
        if len({id(env) for env in envs}) < len(envs):
            raise ValueError(
                "the callable returned the same object twice: it must return a new environment in"
                " every call"
            )
        with self._running("looking for action masks"):
            source = find_source(envs[0])
        if source is not None:
            envs[:] = [MaskedObservation(env, source) for env in envs]
        spec = envs[0].spec
        env_id = spec.id if spec is not None else type(envs[0].unwrapped).__name__
        pairs = [self._spaces_of(env, index) for index, env in enumerate(envs)]
        observation_space, action_space = pairs[0]
        check_action_space(action_space, env_id)
        check_reward_space(envs[0].unwrapped, env_id)
        for others in pairs[1:]:
            if others != pairs[0]:
                raise ValueError(f"{env_id}: all environments of a batch must have the same spaces")
        if limit is None and spec is not None:
            limit = spec.max_episode_steps
        super().__init__(
            env_id, len(envs), observation_space, action_space, max_episode_steps=limit
        )
        self._use_observations()
        info = self._try_out(factory, across_processes)
        source = find_source(envs[0], info)
        if source is not None:  # The first reset told that `info` has masks.
            envs[:] = [MaskedObservation(env, source) for env in envs]
            self.observation_space = envs[0].observation_space
            self._use_observations()
            self._try_out(factory, across_processes)
        self.render_mode = envs[0].render_mode
        self.current = np.zeros(1, np.int64)
        """Index of the environment that is running, for errors about a worker that hangs."""

    def _use_observations(self) -> None:
        """Allocate arrays for observations of the space."""
        try:
            self._observations = ObservationArrays(self.observation_space)
        except ValueError as error:
            raise ValueError(f"{self.env_id}: {error}") from None
        self.observation_space = self._observations.space
        _say_what_is_left_out(self.env_id, self._observations.left_out)
        self._last = self._observations.empty(self.num_envs)

    def _try_out(self, factory: Callable[[], gymnasium.Env], across_processes: bool) -> Any:
        """Find out how to restore the environments; return the `info` of a reset."""
        envs, first = self.envs, self.envs[0]
        method = find_method(first, across_processes=across_processes)
        trial = first
        if isinstance(method, BrokenByCopy):
            # Deleting the old one might close the new one, if its simulator has the same number.
            _broken.append(first)
            envs[0] = trial = first = self._remake(factory)
        if isinstance(method, str):
            self.why_not_restorable = str(method)
        else:
            self.restorability, self._capture_env, self._restore_env = method
            if self.restorability is Restorability.MEMORY:  # Do not change the environment itself.
                trial = method.restore(first, method.capture(first))
        try:
            self.repeatable, info = repeats(trial)
        except ManyRewardsError as error:
            raise ValueError(many_rewards(self.env_id, error.shape)) from None
        return info

    def _remake(self, factory: Callable[[], gymnasium.Env]) -> gymnasium.Env:
        env, old = factory(), self.envs[0]
        return MaskedObservation(env, old.source) if isinstance(old, MaskedObservation) else env

    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation:
        arrays = [array.copy() for array in self._last]
        with Guard():
            for index, seed in zip(ids.tolist(), seeds.tolist(), strict=True):
                self.current[0] = index
                try:
                    answer = self.envs[index].reset(seed=seed)
                    check_parts("reset", answer, ("observation", "info"))
                    self._observations.write(arrays, index, answer[0])
                except BaseException as error:
                    self._fail(error, "reset", index, 0)
        self._last = arrays
        return self._observations.tree([array[ids] for array in arrays])

    def _step(self, actions: Any, active: NDArray[np.bool_]) -> Step:
        # A new copy, because environments may keep or change the action that they get.
        actions = copy_actions(actions, self.action_space)
        arrays = [array.copy() for array in self._last]
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        infos: dict[int, Any] = {}
        with Guard():
            for index in np.flatnonzero(active).tolist():
                self.current[0] = index
                try:
                    answer = self.envs[index].step(row_of(actions, index))
                    observation, *outcome, infos[index] = check_step(answer)
                    self._observations.write(arrays, index, observation)
                except BaseException as error:
                    self._fail(error, "step", index, int(self.elapsed[index]) + 1)
                reward[index], terminated[index], truncated[index] = outcome
        self._last = arrays
        self.info = gather_numbers(infos, self.num_envs)
        if self.on_step is not None:
            self.on_step(len(infos))
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
            try:
                self.envs[index] = self._restore_env(self.envs[index], state)
            except BaseException as error:
                self._fail(error, "restoring a snapshot", index)
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
        with self._running("render", index):
            return np.array(self.envs[index].render(), np.uint8)

    def close(self) -> None:
        """Close every environment, even if one of them raises; then raise the first error.

        A `close` that does not return in time is interrupted, with a warning.
        """
        if self._closed:
            return
        self._closed = True
        errors: list[BaseException] = []
        limit = LATER_SECONDS if self.env_id in _never_close else CLOSE_SECONDS
        deadline = time.monotonic() + limit
        for index, env in enumerate(self.envs):
            try:
                with self._running("close", index):
                    left = max(deadline - time.monotonic(), LATER_SECONDS)
                    if close_within(env.close, left, self.env_id):
                        continue
                if self.env_id not in _never_close:
                    logger.warning(
                        "%s: close did not return within %g seconds and was interrupted.",
                        *(self.env_id, limit),
                    )
                _never_close.add(self.env_id)
            except (EnvError, KeyboardInterrupt) as error:
                errors.append(error)
        for error in errors:
            raise error

    def _spaces_of(self, env: gymnasium.Env, index: int) -> tuple[Any, Any]:
        with self._running("reading its spaces", index):
            return env.observation_space, env.action_space

    @contextlib.contextmanager
    def _running(
        self, what: str, index: int = 0, passes: tuple[type[Exception], ...] = ()
    ) -> Iterator[None]:
        """Run code of an environment: its errors say where, and `Guard` protects the process.

        Args:
            what: Name of the call, for the message.
            index: Index of the environment.
            passes: Errors that are raised unchanged, because they say enough.
        """
        with Guard():
            try:
                yield
            except (EnvError, *passes):
                raise
            except BaseException as error:
                self._fail(error, what, index)

    def _fail(
        self, error: BaseException, what: str, index: int, step: int | None = None
    ) -> NoReturn:
        """Raise an error that says where an environment raised, or returned, something wrong."""
        if isinstance(error, InvalidAnswerError):
            raise self.error(error.kind, str(error), index, step) from None
        if isinstance(error, KeyboardInterrupt) and type(error) is not KeyboardInterrupt:
            raise error  # A signal handler raised it.
        found = self.error(EnvRaisedError, f"{what} raised {describe(error)}", index, step)
        raise (EnvInterrupted(found) if isinstance(error, KeyboardInterrupt) else found) from error


def _say_what_is_left_out(env_id: str, names: Sequence[str]) -> None:
    if names and env_id not in _left_out:
        _left_out.add(env_id)
        logger.warning(
            "%s: the policy leaves out the texts %s.",
            *(env_id, " and ".join(names)),
        )


def copy_actions(actions: Any, space: gymnasium.Space[Any]) -> Any:
    """Return a copy of a batch of actions with the data types of their space."""
    if isinstance(space, spaces.Dict):
        return {key: copy_actions(actions[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(actions, space.spaces, strict=True)
        return tuple(copy_actions(part, inner) for part, inner in pairs)
    return np.array(actions, space.dtype)


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
