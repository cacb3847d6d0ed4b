"""Environments are batches: the contract between simulators and samplers.

A `BatchEnv` advances `num_envs` copies of one environment together. It never resets by itself: the
sampler says when, and with which seed, so that every episode is a pure function of its seed and its
actions. Arrays that `step` and `reset` return are never written to again.

A batch declares whether it can be restored (`restorability`), which vine needs (Sec. 5.2).
`snapshot` captures everything that the future depends on. After `restore` the future is bit for bit
the one that the snapshot had, in the same environment of the batch or in another one.
"""

import abc
import enum
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.errors import BadValueError, EnvError, NotRestorableError
from trellis.spaces import ActionMap, Observation

Snapshot = Mapping[str, NDArray[Any]]
"""What `snapshot` returns: arrays with one row per environment. They may be indexed, repeated and
restored in another batch of the same environment."""
LARGEST = float(np.finfo(np.float32).max)


class Restorability(enum.Enum):
    """Whether an environment can be restored, and whether its snapshot can be written to disk."""

    NONE = "not restorable"
    MEMORY = "restorable in memory"
    SERIALIZABLE = "serializable"


class Step(NamedTuple):
    """The result of one step of all environments.

    Environments that were not active repeat their last observation with reward 0 and neither flag.
    """

    observation: Observation
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class BatchEnv(abc.ABC):
    """`num_envs` copies of one environment, stepped together.

    Subclasses implement `_reset`, `_step`, and where they can `_snapshot`, `_restore`, `_reseed`.
    This class does what all of them need: mapping actions, counting steps, the time limit, keeping
    the seeds, and checking that values are finite.

    Args:
        env_id: The id of the environment, which errors mention.
        num_envs: Size of the batch.
        observation_space: Space of one environment's observations.
        action_space: Space of one environment's actions.
        max_episode_steps: Steps after which an episode is truncated; None or -1 for no limit.
    """

    restorability: Restorability = Restorability.NONE
    why_not_restorable: str = "Use the single-path sampler, which never needs it."
    """Why the environment cannot be restored, and what would make it restorable."""
    repeatable: bool = True
    """Whether an episode is a function of its seed and its actions, as far as a trial shows."""
    most_rows: int | None = None
    """Largest useful batch for rollouts that advance together. None: no such limit."""
    seconds_per_step: float | None = None
    """Simulated seconds of one step, for videos in real time. None: unknown."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        max_episode_steps: int | None = None,
    ):
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.env_id = env_id
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        if max_episode_steps == -1:  # Gymnasium's word for it
            max_episode_steps = None
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(
                f"max_episode_steps must be at least 1, or -1 for no limit, got {max_episode_steps}"
            )
        self.max_episode_steps = max_episode_steps
        self.elapsed = np.zeros(num_envs, np.int64)
        self.seeds = np.full(num_envs, -1, np.int64)
        self.info: dict[str, NDArray[Any]] = {}
        """Quantities that the last step reported, each an array with a row per environment."""
        self._all_active = np.ones(num_envs, bool)

    def reset(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> Observation:
        """Start new episodes.

        Args:
            ids: The environments of the batch that start one.
            seeds: One seed for each of them.

        Returns:
            The first observations, a row for each of `ids`.
        """
        ids, seeds = np.asarray(ids, np.int64), np.asarray(seeds, np.int64)
        if ids.shape != seeds.shape:
            raise ValueError(
                f"reset needs a seed per environment: {ids.size} ids, {seeds.size} seeds"
            )
        self.elapsed[ids] = 0
        self.seeds[ids] = seeds
        observation = self._reset(ids, seeds)
        self.check_finite("observation", observation, ids)
        return observation

    def step(self, actions: NDArray[Any], active: NDArray[np.bool_] | None = None) -> Step:
        """Advance the active environments by one step.

        Args:
            actions: Actions as the policy samples them, a row for every environment, active or
                not. `map_actions` converts them for the environment.
            active: Which environments advance; all by default. The others stay where they are.

        Returns:
            Observations, rewards and ends, a row for every environment. The step that ends an
            episode has its final observation.
        """
        if len(actions) != self.num_envs:
            raise ValueError(f"step needs {self.num_envs} actions, got {len(actions)}")
        moved = self._all_active if active is None else active
        step = self._step(self.map_actions(actions), moved)
        return self._end_step(step, slice(0, self.num_envs), active)

    def _end_step(self, step: Step, rows: slice, active: NDArray[np.bool_] | None) -> Step:
        """Count the step of some environments, check its values and apply the time limit."""
        self.elapsed[rows] += 1 if active is None else active
        ids = None if rows.start == 0 else np.arange(rows.start, rows.stop)
        self.check_finite("observation", step.observation, ids)
        self.check_finite("reward", step.reward, ids)
        if self.max_episode_steps is None:
            return step
        observation, reward, terminated, truncated = step
        late = self.elapsed[rows] >= self.max_episode_steps
        truncated = truncated | late if active is None else truncated | (late & active)
        return Step(observation, reward, terminated, truncated)

    def map_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return what the policy sampled in the environment's own terms (see `ActionMap`)."""
        return self._action_map(actions)

    @functools.cached_property
    def _action_map(self) -> ActionMap:
        return ActionMap(self.action_space)

    def snapshot(self, ids: NDArray[np.integer]) -> Snapshot:
        """Capture everything that the future of the environments `ids` depends on.

        Returns:
            Arrays with a row for each of `ids`, for `restore`.
        """
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        return {**self._snapshot(ids), "elapsed": self.elapsed[ids], "seed": self.seeds[ids]}

    def restore(self, ids: NDArray[np.integer], snapshot: Snapshot) -> Observation:
        """Restore the rows of a snapshot in the environments `ids`.

        Returns:
            The observations that the snapshot had, a row for each of `ids`.
        """
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        self.elapsed[ids] = snapshot["elapsed"]
        self.seeds[ids] = snapshot["seed"]
        return self._restore(ids, snapshot)

    def reseed(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> None:
        """Give the environments `ids` new random streams and leave their states as they are."""
        self.require_restorable()
        self._reseed(np.asarray(ids, np.int64), np.asarray(seeds, np.int64))

    def require_restorable(self) -> None:
        """Raise `NotRestorableError`, with the reason, where the batch cannot be restored."""
        if self.restorability is Restorability.NONE:
            raise NotRestorableError(f"{self.env_id} cannot be restored. {self.why_not_restorable}")

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3)."""
        raise NotImplementedError(f"{self.env_id} has no pictures: its batch has no render method")

    def close(self) -> None:
        """Release processes and memory. The batch cannot be used afterwards."""

    def check_finite(
        self, what: str, values: Observation, ids: NDArray[np.integer] | None = None
    ) -> None:
        """Raise `BadValueError` for the first row of `values` that is not finite in float32.

        Args:
            what: What the values are, for the message.
            values: Arrays with a row per environment.
            ids: The environments of the rows; all of the batch by default.
        """
        for leaf in leaves(values):
            # The sum of squares tells of any NaN or infinity; overflow alone is checked again.
            if leaf.dtype.kind != "f" or float(np.vdot(leaf, leaf)) <= LARGEST**2:
                continue
            finite = np.abs(leaf) <= LARGEST
            if finite.all():
                continue
            row = int(np.argmin(finite.reshape(len(leaf), -1).all(axis=1)))
            index = row if ids is None else int(ids[row])
            raise self.error(BadValueError, f"{what} is not finite: {leaf[row]}", index)

    def error(
        self, kind: type[EnvError], reason: str, index: int = 0, step: int | None = None
    ) -> EnvError:
        """Return an error about environment `index`, at `step` or after the steps so far."""
        seed = int(self.seeds[index])
        return kind(
            reason,
            env_id=self.env_id,
            index=index,
            step=int(self.elapsed[index]) if step is None else step,
            seed=None if seed < 0 else seed,
        )

    @abc.abstractmethod
    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation: ...

    @abc.abstractmethod
    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step: ...

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        raise NotImplementedError

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        raise NotImplementedError

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Do nothing by default: deterministic dynamics have no random stream."""


def leaves(observation: Observation) -> list[NDArray[Any]]:
    """Return the arrays of an observation, whatever its structure."""
    if isinstance(observation, Mapping):
        return [leaf for value in observation.values() for leaf in leaves(value)]
    if isinstance(observation, tuple):
        return [leaf for value in observation for leaf in leaves(value)]
    return [observation]
