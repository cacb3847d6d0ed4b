"""Registers our tasks and games with Gymnasium, for `gymnasium.make` and libraries that use it.

Importing `trellis.envs` registers them; `gymnasium.make("trellis.envs:trellis/PaperHopper-v0")`
does both at once. MuJoCo is not imported until an environment is created.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from trellis.actions import flat_action
from trellis.envs.batch import BatchEnv
from trellis.envs.catalog import make
from trellis.envs.games import GAMES
from trellis.envs.lookup import (
    MEMORY_PROBES,
    PAPER_CARTPOLE,
    PAPER_ON_MUJOCO,
    SEEING,
    WITHOUT_VELOCITY,
)
from trellis.envs.values import leaves
from trellis.spaces import row_of

IDS = (*PAPER_ON_MUJOCO, PAPER_CARTPOLE, *WITHOUT_VELOCITY, *MEMORY_PROBES)
"""Ids of the paper's tasks, of tasks without velocities and of tasks that need memory."""
MAX_EPISODE_STEPS: dict[str, int | None] = {
    "trellis/CartPoleNoVelocity-v0": 500,
    "trellis/PendulumNoVelocity-v0": 200,
    "trellis/TMaze-v0": 60,
    "trellis/Repeat-v0": None,  # The batch has a limit that depends on the delay.
}
"""Registered time limits of the tasks that have another one than 1,000 steps."""
# Without a seed from the caller, the environment's generator chooses one below this number.
_SEEDS = 2**31


def register_envs() -> None:
    """Register our tasks and games with Gymnasium; a second call does nothing.

    Importing `trellis.envs` calls this function.

    Example:
        >>> import gymnasium
        >>> register_envs()
        >>> "trellis/PaperHopper-v0" in gymnasium.registry
        True
    """
    for env_id in (*IDS, *GAMES, *SEEING):
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="trellis.envs.register:SingleEnv",
                vector_entry_point="trellis.envs.register:BatchVectorEnv",
                max_episode_steps=_registered_limit(env_id),
                kwargs={"env_id": env_id},
            )


def _registered_limit(env_id: str) -> int | None:
    """Return the time limit that Gymnasium applies by default; None for that of the batch."""
    return MAX_EPISODE_STEPS.get(env_id, 1000) if env_id in IDS else None


def _warn_if_too_short(batch: BatchEnv, limit: int | None) -> None:
    """Warn if a task cannot be solved within its time limit, which does not know its options."""
    fewest = getattr(batch, "fewest_steps", 0)
    if limit is not None and limit < fewest:
        warnings.warn(
            f"{batch.env_id} takes at least {fewest} steps with these options, but its episodes end"
            f" after {limit}: pass a larger max_episode_steps",
            stacklevel=3,
        )


def _metadata(batch: BatchEnv) -> dict[str, Any]:
    assert batch.seconds_per_step is not None
    return {"render_modes": ["rgb_array"], "render_fps": round(1 / batch.seconds_per_step)}


class SingleEnv(gymnasium.Env[Any, Any]):
    """A batch of one environment as `gymnasium.Env`.

    Gymnasium's wrapper applies the registered time limit, or the one that its caller chooses.
    Games and `trellis/Repeat-v0` have limits of their own.

    Args:
        env_id: Id of the environment.
        render_mode: "rgb_array" for pictures, or None.
        **options: Options of the environment.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, env_id: str, render_mode: str | None = None, **options: Any):
        self._limit = _registered_limit(env_id)
        limit = {} if self._limit is None else {"max_episode_steps": -1}  # The wrapper has it.
        self.batch = make(env_id, 1, **{**options, **limit})
        self.observation_space = self.batch.observation_space
        self.action_space = self.batch.action_space
        self.metadata = _metadata(self.batch)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode with `seed`, or with a seed from the environment's own generator."""
        super().reset(seed=seed)
        if self.batch.elapsed[0] == self._limit:  # The default limit ended the last episode.
            _warn_if_too_short(self.batch, self._limit)
        if seed is None:
            seed = int(self.np_random.integers(_SEEDS))
        return row_of(self.batch.reset(np.zeros(1, np.int64), np.array([seed])), 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one step; actions outside the bounds are clipped."""
        step = self.batch.step(flat_action(action, self.action_space)[None])
        info = {name: values[0] for name, values in self.batch.info.items()}
        flags = bool(step.terminated[0]), bool(step.truncated[0])
        return row_of(step.observation, 0), float(step.reward[0]), *flags, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture, if `render_mode="rgb_array"`."""
        return self.batch.render(0) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Close the batch."""
        self.batch.close()


class BatchVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """A batch as `gymnasium.vector.VectorEnv`.

    The step after the end of an episode resets that environment, ignores its action and has reward
    0 (`AutoresetMode.NEXT_STEP`).

    Args:
        env_id: Id of the environment.
        num_envs: Size of the batch.
        render_mode: "rgb_array" for pictures, or None.
        **options: Options of the environment.
    """

    def __init__(
        self, env_id: str, num_envs: int = 1, render_mode: str | None = None, **options: Any
    ):
        self.batch = make(env_id, num_envs, **options)
        _warn_if_too_short(self.batch, self.batch.max_episode_steps)
        self.num_envs = num_envs
        self.single_observation_space = self.batch.observation_space
        self.single_action_space = self.batch.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = _metadata(self.batch) | {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = render_mode
        self._ended = np.zeros(num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in every environment.

        Args:
            seed: Seed of the first environment (the others have seed + 1, seed + 2, …), or one seed
                per environment, or None for random seeds.
            options: Ignored.
        """
        first = seed if seed is None or isinstance(seed, int) else next(iter(seed), None)
        super().reset(seed=first)
        seeds = self.np_random.integers(_SEEDS, size=self.num_envs)
        if isinstance(seed, int):
            seeds = seed + np.arange(self.num_envs)
        elif seed is not None:
            given = zip(seed, seeds, strict=True)
            seeds = np.array([sampled if one is None else one for one, sampled in given])
        self._ended = np.zeros(self.num_envs, bool)
        return self.batch.reset(np.arange(self.num_envs), seeds), {}

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Advance environments by one step, and reset those whose episode has ended."""
        active = ~self._ended
        rows = np.asarray(actions)
        if isinstance(self.single_action_space, spaces.Dict | spaces.Tuple):
            everyone = range(self.num_envs)
            rows = [flat_action(row_of(actions, i), self.single_action_space) for i in everyone]
            rows = np.stack(rows)
        step = self.batch.step(rows, None if active.all() else active)
        observation = step.observation
        if self._ended.any():
            ids = np.flatnonzero(self._ended)
            seeds = self.np_random.integers(_SEEDS, size=ids.size)
            first = self.batch.reset(ids, seeds)
            for array, values in zip(leaves(observation), leaves(first), strict=True):
                array[ids] = values
        self._ended = step.terminated | step.truncated
        info = {**self.batch.info, **{f"_{name}": active for name in self.batch.info}}
        return observation, step.reward, step.terminated, step.truncated, info

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return a picture of each environment, if `render_mode="rgb_array"`."""
        if self.render_mode != "rgb_array":
            return None
        return tuple(self.batch.render(index) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the batch."""
        self.batch.close()
