"""Environments are batches: the contract between simulators and samplers.

A `BatchEnv` advances `num_envs` copies of one environment together. It never resets by itself: the
sampler says when, and with which seed, so that every episode is a pure function of its seed and its
actions. What `step` and `reset` hand out is never written to again.

A batch that can be put back where it was says so (`restorability`), which is what vine needs
(Sec. 5.2): `snapshot` takes everything that the future depends on, and after `restore` the future
is bit for bit the one that the snapshot had, in place or in another row.
"""

import abc
import enum
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

# An array with one row per environment, or (Dict and Tuple spaces) a pytree of such arrays.
Observation = Any
# What `snapshot` takes: arrays with one row per environment. Rows may be indexed, repeated and
# handed to another batch of the same environment.
Rows = Mapping[str, NDArray[Any]]
LARGEST = float(np.finfo(np.float32).max)


class Restorability(enum.Enum):
    """Whether an environment can be put back, and whether that state can be written to disk."""

    NONE = "not restorable"
    MEMORY = "restorable in memory"
    SERIALIZABLE = "serializable"


class Step(NamedTuple):
    """What one step of all environments gave; rows that were not active repeat their last
    observation with reward 0 and neither flag."""

    observation: Observation
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class EnvError(RuntimeError):
    """An environment misbehaved: which one, where in its episode, how to get there again."""

    def __init__(self, reason: str, *, env_id: str, index: int, step: int, seed: int | None):
        self.env_id, self.index, self.step, self.seed = env_id, index, step, seed
        self.reason = reason
        super().__init__(
            f"{env_id}: {reason} (environment {index} of its batch, step {step} of an episode"
            f" that was reset with seed {seed})"
        )


class EnvRaisedError(EnvError):
    """The environment raised; the original exception is the cause."""


class BadValueError(EnvError):
    """NaN or infinity came out of the environment."""


class BadShapeError(EnvError):
    """A shape or dtype came out of the environment that its space does not have."""


class WorkerTimeoutError(EnvError):
    """A worker process did not answer within its time limit."""


class WorkerDiedError(EnvError):
    """A worker process ended while it was needed."""


class NotRestorableError(RuntimeError):
    """This environment cannot be put back where it was; the message says what would make it so."""


class BatchEnv(abc.ABC):
    """`num_envs` copies of one environment, stepped together.

    Subclasses implement `_reset`, `_step`, and where they can `_snapshot`, `_restore`, `_reseed`.
    This class keeps what all need: the mapping of actions, elapsed steps and the time limit, the
    seeds, the check for values that are not finite.
    """

    restorability: Restorability = Restorability.NONE
    most_rows: int | None = None
    """Of a batch in which rollouts advance together, where more would bring nothing but cost."""

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
        """What the last step measured besides the reward, a row per environment; may be empty."""
        self._all_active = np.ones(num_envs, bool)

    def reset(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> Observation:
        """Starts new episodes in the rows `ids`, one seed each; their first observations."""
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
        """Advances the active rows (all, unless said otherwise) by what the policy drew.

        `actions` has a row for every environment, active or not, in the policy's own terms:
        `map_actions` turns them into the environment's.
        """
        if len(actions) != self.num_envs:
            raise ValueError(f"step needs {self.num_envs} actions, got {len(actions)}")
        moved = self._all_active if active is None else active
        step = self._step(self.map_actions(actions), moved)
        return self._end_step(step, slice(0, self.num_envs), active)

    def _end_step(self, step: Step, rows: slice, active: NDArray[np.bool_] | None) -> Step:
        """What all environments do when rows have made a step: the check, the time limit."""
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
        """From what a policy draws to what the environment takes; clipping happens here.

        Where a Box has finite bounds it is met by [-1, 1]: the policy's unit interval covers it,
        and what lies outside is clipped (for the common [-1, 1] this is clipping alone). Where it
        has one or none, actions go through as they are, within that bound. Discrete kinds count
        from 0 in the policy and from the space's own start here.
        """
        space = self.action_space
        if isinstance(space, spaces.Box):
            actions = np.reshape(actions, (len(actions), *space.shape))
            low, high, unit, middle, half = self._action_range
            if unit is None:
                return np.minimum(np.maximum(actions, low), high)
            # Clipped again: the sum may round to a place outside.
            stretched = middle + half * np.minimum(np.maximum(actions, -unit), unit)
            return np.minimum(np.maximum(stretched, low), high)
        if isinstance(space, spaces.Discrete):
            return np.reshape(actions, (len(actions),)) + space.start
        if isinstance(space, spaces.MultiDiscrete):
            return np.reshape(actions, (len(actions), *space.shape)) + space.start
        return np.reshape(actions, (len(actions), *(space.shape or ())))

    @functools.cached_property
    def _action_range(self) -> tuple[Any, Any, Any, Any, Any]:
        """Bounds of a Box; and where an interval is to be stretched, the half width of what is
        taken from the policy, and the middle and half width of what it becomes."""
        low, high = self.action_space.low, self.action_space.high  # pyright: ignore
        if np.all(low == -1) and np.all(high == 1):
            return -1.0, 1.0, None, None, None
        bounded = np.isfinite(low) & np.isfinite(high)
        if not bounded.any():
            return low, high, None, None, None
        zero, one = low.dtype.type(0), low.dtype.type(1)
        middle = np.add(low / 2, high / 2, where=bounded, out=np.full_like(low, zero))
        half = np.subtract(high / 2, low / 2, where=bounded, out=np.full_like(low, one))
        return low, high, np.where(bounded, one, np.inf).astype(low.dtype), middle, half

    def snapshot(self, ids: NDArray[np.integer]) -> Rows:
        """Everything that the future of the rows `ids` depends on, and their observations."""
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        return {**self._snapshot(ids), "elapsed": self.elapsed[ids], "seed": self.seeds[ids]}

    def restore(self, ids: NDArray[np.integer], rows: Rows) -> Observation:
        """Puts rows of a snapshot into the environments `ids`; the observations they had."""
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        self.elapsed[ids] = rows["elapsed"]
        self.seeds[ids] = rows["seed"]
        return self._restore(ids, rows)

    def reseed(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> None:
        """New random streams for what the rows `ids` draw from now on; their states stay."""
        self.require_restorable()
        self._reseed(np.asarray(ids, np.int64), np.asarray(seeds, np.int64))

    def require_restorable(self) -> None:
        """Raises with the reason and the remedy, where this environment cannot be put back."""
        if self.restorability is Restorability.NONE:
            raise NotRestorableError(
                f"{self.env_id} cannot be put back where it was. {self.why_not_restorable}"
            )

    why_not_restorable: str = "Use the single-path sampler, which never needs it."
    """Why not, and what would make it restorable."""

    def check_finite(self, what: str, values: Any, ids: NDArray[np.integer] | None = None) -> None:
        """Raises `BadValueError` at the first row of `values` that is not finite, in the single
        precision that policies compute with."""
        for leaf in leaves(values):
            # The sum of squares tells of any NaN or infinity; overflow alone gets a second look.
            if leaf.dtype.kind != "f" or float(np.vdot(leaf, leaf)) <= LARGEST**2:
                continue
            finite = np.abs(leaf) <= LARGEST
            if finite.all():
                continue
            row = int(np.argmin(finite.reshape(len(leaf), -1).all(axis=1)))
            raise self.error(BadValueError, f"{what} is not finite: {leaf[row]}", ids, row)

    def error(
        self,
        kind: type[EnvError],
        reason: str,
        ids: NDArray[np.integer] | None = None,
        row: int = 0,
    ) -> EnvError:
        """An error of this kind about row `row` of `ids`, with its whereabouts filled in."""
        index = row if ids is None else int(ids[row])
        seed = int(self.seeds[index])
        return kind(
            reason,
            env_id=self.env_id,
            index=index,
            step=int(self.elapsed[index]),
            seed=None if seed < 0 else seed,
        )

    @abc.abstractmethod
    def _reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> Observation: ...

    @abc.abstractmethod
    def _step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> Step: ...

    def _snapshot(self, ids: NDArray[np.int64]) -> Rows:
        raise NotImplementedError

    def _restore(self, ids: NDArray[np.int64], rows: Rows) -> Observation:
        raise NotImplementedError

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Nothing, where the dynamics draw no random numbers."""

    def close(self) -> None:
        """Lets go of processes and memory. The batch cannot be used afterwards."""


def leaves(observation: Observation) -> list[NDArray[Any]]:
    """The arrays of an observation, whatever its structure."""
    if isinstance(observation, np.ndarray):
        return [observation]
    if isinstance(observation, Mapping):
        return [leaf for value in observation.values() for leaf in leaves(value)]
    if isinstance(observation, tuple):
        return [leaf for value in observation for leaf in leaves(value)]
    return [observation]
