"""Defines `BatchEnv`, the contract between simulators and samplers.

A `BatchEnv` steps `num_envs` copies of one environment together. It never resets an environment by
itself. The sampler decides when to reset and with which seed, so every episode is a pure function
of its seed and its actions. Arrays that `step` and `reset` return are never written to again.

A batch declares whether it can be restored (`restorability`), which vine needs (Sec. 5.2).
`snapshot` captures everything that the future depends on. After `restore` the future is the same
bit for bit, in the same environment of the batch or in another one.
"""

import abc
import enum
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.actions import ActionMap
from trellis.envs.errors import BadValueError, EnvError, NotRestorableError
from trellis.envs.values import first_not_finite, leaves
from trellis.masks import MASK_KEY, factor_sizes, first_illegal, mask_size
from trellis.spaces import Observation

Snapshot = Mapping[str, NDArray[Any]]
"""State of some environments, from `BatchEnv.snapshot`: named arrays with one row per environment.

Rows may be indexed, repeated, and restored in another batch of the same environment.
"""


class Restorability(enum.Enum):
    """Whether an environment can be restored, and whether its snapshots can be written to disk."""

    NONE = "not restorable"
    """Snapshots are not possible."""
    MEMORY = "restorable in memory"
    """Snapshots exist in memory only and do not go into checkpoints."""
    SERIALIZABLE = "serializable"
    """Snapshots are plain arrays, which checkpoints store."""


class Step(NamedTuple):
    """Result of one step of a batch, with one row per environment.

    Environments that were not active repeat their last observation, with reward 0 and both flags
    False.
    """

    observation: Observation
    """Observations after the step; the final ones where an episode ended."""
    reward: NDArray[np.float64]
    """Rewards of the step."""
    terminated: NDArray[np.bool_]
    """Whether the step ended the episode in a terminal state."""
    truncated: NDArray[np.bool_]
    """Whether the step ended the episode early, for example at the time limit."""


class BatchEnv(abc.ABC):
    """Batch of `num_envs` copies of one environment, stepped together.

    `trellis.envs.make` creates batches. To write your own, implement `_reset` and `_step`, and, if
    the environment is restorable, `_snapshot`, `_restore` and `_reseed`. This class maps actions,
    counts steps, applies the time limit, stores the seeds and checks that values are finite.

    Args:
        env_id: Id of the environment, for error messages.
        num_envs: Size of the batch.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        max_episode_steps: Time limit, after which an episode is truncated; None or -1 for no limit.

    Example:
        >>> from trellis.envs import make
        >>> batch = make("CartPole-v1", num_envs=2)
        >>> _ = batch.reset(np.arange(2), seeds=np.array([7, 8]))
        >>> snapshot = batch.snapshot(np.array([0]))
        >>> step = batch.step(np.array([1, 1]))
        >>> restored = batch.restore(np.array([0]), snapshot)
        >>> bool((batch.step(np.array([1, 1])).observation[0] == step.observation[0]).all())
        True
    """

    restorability: Restorability = Restorability.NONE
    """Whether the environment can be restored."""
    why_not_restorable: str = "Use the single-path sampler, which does not need snapshots."
    """Reason why the environment cannot be restored, and what would make it restorable."""
    repeatable: bool = True
    """Whether seed and actions determine an episode, as far as a short test shows."""
    most_rows: int | None = None
    """Largest useful number of environments in a batch of vine's rollouts; None for no limit."""
    seconds_per_step: float | None = None
    """Simulated seconds per step, for videos in real time; None if unknown."""

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
        if max_episode_steps == -1:  # Gymnasium's value for "no limit"
            max_episode_steps = None
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(
                f"max_episode_steps must be at least 1, or -1 for no limit, got {max_episode_steps}"
            )
        self.max_episode_steps = max_episode_steps
        self.elapsed = np.zeros(num_envs, np.int64)
        self.seeds = np.full(num_envs, -1, np.int64)
        self.info: Mapping[str, NDArray[Any]] = {}
        """Quantities that the last step reported: named arrays with one row per environment."""
        self.on_step: Callable[[int], None] | None = None
        """Function that batches of Python objects call after each step, with the number of
        environments that advanced; for progress displays."""
        self._all_active = np.ones(num_envs, bool)

    def reset(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> Observation:
        """Start new episodes in some environments.

        Args:
            ids: Indices of the environments.
            seeds: One seed for each of `ids`.

        Returns:
            The first observations, one row for each of `ids`.
        """
        ids, seeds = np.asarray(ids, np.int64), np.asarray(seeds, np.int64)
        if ids.shape != seeds.shape:
            raise ValueError(
                f"reset needs one seed per environment, got {ids.size} ids and {seeds.size} seeds"
            )
        self.elapsed[ids] = 0
        self.seeds[ids] = seeds
        observation = self._reset(ids, seeds)
        self.check_finite("observation", observation, ids)
        if self.masked_factors:
            self.check_masks(observation[MASK_KEY], ids)
        return observation

    def step(self, actions: NDArray[Any], active: NDArray[np.bool_] | None = None) -> Step:
        """Advance the active environments by one step.

        Args:
            actions: Actions in the form that the policy samples, one row for every environment,
                active or not. `map_actions` converts them for the environment.
            active: Mask of the environments that advance; all by default. The state of the others
                does not change.

        Returns:
            Observations, rewards and flags, one row for every environment. The step that ends an
            episode has its final observation.
        """
        count = len(actions if isinstance(actions, np.ndarray) else leaves(actions)[0])
        if count != self.num_envs:
            raise ValueError(f"step needs {self.num_envs} actions, got {count}")
        moved = self._all_active if active is None else active
        step = self._step(self.map_actions(actions), moved)
        return self._end_step(step, slice(0, self.num_envs), active)

    def _end_step(self, step: Step, rows: slice, active: NDArray[np.bool_] | None) -> Step:
        """Count the step of some environments, check its values and apply the time limit."""
        elapsed = self.elapsed[rows]
        elapsed += 1 if active is None else active
        ids = None if rows.start == 0 else np.arange(rows.start, rows.stop)
        self.check_finite("observation", step.observation, ids)
        self.check_finite("reward", step.reward, ids)
        if self.max_episode_steps is not None and elapsed.max() >= self.max_episode_steps:
            observation, reward, terminated, truncated = step
            late = elapsed >= self.max_episode_steps
            truncated = truncated | late if active is None else truncated | (late & active)
            step = Step(observation, reward, terminated, truncated)
        if self.masked_factors:
            acts = ~(step.terminated | step.truncated)
            acts = np.flatnonzero(acts if active is None else acts & active)
            self.check_masks(step.observation[MASK_KEY][acts], acts + rows.start)
        return step

    @functools.cached_property
    def masked_factors(self) -> tuple[int, ...]:
        """Sizes of the factors of an action; empty if observations have no action masks."""
        return factor_sizes(self.action_space) if mask_size(self.observation_space) else ()

    def check_masks(self, masks: NDArray[Any], ids: NDArray[np.integer] | None = None) -> None:
        """Raise `BadValueError` for the first environment that has no legal action.

        Args:
            masks: Action masks of environments that act next, one row each.
            ids: Environments of the rows; all of the batch by default.
        """
        masks = masks.reshape(len(masks), sum(self.masked_factors))
        row = first_illegal(masks, self.masked_factors)
        if row is not None:
            raise self.error(
                BadValueError,
                f"{MASK_KEY} allows no action ({masks[row]}): end the episode in such a state, or"
                " allow an action that does nothing",
                row if ids is None else int(ids[row]),
            )

    def map_actions(self, actions: NDArray[Any]) -> Any:
        """Return the environment's actions for actions that a policy sampled (see `ActionMap`).

        For a Dict or Tuple action space they have its structure, with one row per environment.
        """
        return self._action_map(actions)

    @functools.cached_property
    def _action_map(self) -> ActionMap:
        return ActionMap(self.action_space)

    def snapshot(self, ids: NDArray[np.integer]) -> Snapshot:
        """Capture everything that the future of the environments `ids` depends on.

        Args:
            ids: Indices of the environments.

        Returns:
            Named arrays with one row for each of `ids`, for `restore`.

        Raises:
            NotRestorableError: The environment cannot be restored.
        """
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        return {**self._snapshot(ids), "elapsed": self.elapsed[ids], "seed": self.seeds[ids]}

    def restore(self, ids: NDArray[np.integer], snapshot: Snapshot) -> Observation:
        """Restore the rows of a snapshot in the environments `ids`.

        Args:
            ids: Indices of the environments.
            snapshot: A snapshot with one row for each of `ids`.

        Returns:
            The observations at the time of the snapshot, one row for each of `ids`.

        Raises:
            NotRestorableError: The environment cannot be restored.
        """
        self.require_restorable()
        ids = np.asarray(ids, np.int64)
        self.elapsed[ids] = snapshot["elapsed"]
        self.seeds[ids] = snapshot["seed"]
        return self._restore(ids, snapshot)

    def require_possible(self, snapshot: Snapshot) -> None:
        """Raise a `ValueError` if a snapshot holds numbers that the environment never has.

        A checkpoint may come from anywhere, so its snapshot is checked before it is restored. Its
        types and shapes are known to fit. By default everything is possible.

        Args:
            snapshot: A snapshot of all environments of the batch.
        """

    def reseed(self, ids: NDArray[np.integer], seeds: NDArray[np.integer]) -> None:
        """Give the environments `ids` new random streams without changing their states.

        Args:
            ids: Indices of the environments.
            seeds: One seed for each of `ids`.
        """
        self.require_restorable()
        self._reseed(np.asarray(ids, np.int64), np.asarray(seeds, np.int64))

    def impossible(self) -> ValueError:
        """Return the error of `require_possible`."""
        return ValueError(f"this is not a snapshot of {self.env_id}: a number is out of range")

    def require_restorable(self) -> None:
        """Raise `NotRestorableError`, with the reason, if the batch cannot be restored."""
        if self.restorability is Restorability.NONE:
            raise NotRestorableError(f"{self.env_id} cannot be restored. {self.why_not_restorable}")

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of environment `index`, (height, width, 3)."""
        raise NotImplementedError(
            f"{self.env_id} cannot be rendered, because {type(self).__name__} has no render method"
        )

    def close(self) -> None:
        """Release processes and memory. The batch cannot be used afterwards."""

    def check_finite(
        self, what: str, values: Observation, ids: NDArray[np.integer] | None = None
    ) -> None:
        """Raise `BadValueError` for the first row of `values` that is not finite in float32.

        Args:
            what: Name of the values, for the message.
            values: Arrays with one row per environment.
            ids: Environments of the rows; all of the batch by default.
        """
        found = first_not_finite(values)
        if found is not None:
            row, numbers = found
            index = row if ids is None else int(ids[row])
            raise self.error(BadValueError, f"{what} is not finite: {numbers}", index)

    def error(
        self, kind: type[EnvError], reason: str, index: int = 0, step: int | None = None
    ) -> EnvError:
        """Return an error about environment `index`; `step` is the current step by default."""
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
    def _step(self, actions: Any, active: NDArray[np.bool_]) -> Step: ...

    def _snapshot(self, ids: NDArray[np.int64]) -> Snapshot:
        raise NotImplementedError

    def _restore(self, ids: NDArray[np.int64], snapshot: Snapshot) -> Observation:
        raise NotImplementedError

    def _reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Do nothing by default, because deterministic dynamics have no random stream."""
