"""Our tasks as Gymnasium environments, for `gymnasium.make` and any library that builds on it.

Importing `trellis.envs` registers them; `gymnasium.make("trellis.envs:trellis/PaperHopper-v0")`
does both at once. Nothing of MuJoCo is imported until an environment is made.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from trellis.envs.batch import BatchEnv

MAX_EPISODE_STEPS = 1000
# A fresh seed for every episode that was not given one.
_SEEDS = 2**31


def register_envs() -> None:
    """Makes our tasks known to Gymnasium, once."""
    for env_id in IDS:
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="trellis.envs.register:SingleEnv",
                vector_entry_point="trellis.envs.register:BatchVectorEnv",
                max_episode_steps=MAX_EPISODE_STEPS,
                kwargs={"env_id": env_id},
            )


def _make_locomotion(env_id: str, num_envs: int, **options: Any) -> BatchEnv:
    from trellis.envs.mujoco import paper

    return paper.make(env_id, num_envs, **options)


def _make_cartpole(env_id: str, num_envs: int, **options: Any) -> BatchEnv:
    from trellis.envs.classic.cartpole import PaperCartPole

    return PaperCartPole(num_envs, **options)


IDS: dict[str, Callable[..., BatchEnv]] = {
    "trellis/PaperSwimmer-v0": _make_locomotion,
    "trellis/PaperHopper-v0": _make_locomotion,
    "trellis/PaperWalker-v0": _make_locomotion,
    "trellis/PaperCartPole-v0": _make_cartpole,
}


def _metadata(batch: Any) -> dict[str, Any]:
    return {"render_modes": ["rgb_array"], "render_fps": round(1 / batch.seconds_per_step)}


class SingleEnv(gymnasium.Env[NDArray[Any], NDArray[Any]]):
    """A batch of one as `gymnasium.Env`. The time limit is Gymnasium's own wrapper."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, env_id: str, render_mode: str | None = None, **options: Any):
        self.batch: Any = IDS[env_id](env_id, 1, **{**options, "max_episode_steps": None})
        self.observation_space = self.batch.observation_space
        self.action_space = self.batch.action_space
        self.metadata = _metadata(self.batch)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """A new episode, given by `seed`; without one, the next of the last seed's stream."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(_SEEDS))
        return self.batch.reset(np.zeros(1, np.int64), np.array([seed]))[0], {}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """One step; actions outside the bounds are clipped."""
        step = self.batch.step(np.asarray(action)[None])
        info = {name: values[0] for name, values in self.batch.info.items()}
        return step.observation[0], float(step.reward[0]), bool(step.terminated[0]), False, info

    def render(self) -> Any:
        """A picture, if `render_mode="rgb_array"` was asked for."""
        return self.batch.render(0) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Lets go of the renderer."""
        self.batch.close()


class BatchVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """A batch as `gymnasium.vector.VectorEnv`: an episode's end is followed by its reset in the
    next step, which ignores that row's action and has reward 0."""

    def __init__(
        self, env_id: str, num_envs: int = 1, render_mode: str | None = None, **options: Any
    ):
        self.batch: Any = IDS[env_id](env_id, num_envs, **options)
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
        """New episodes in all rows: seeds seed, seed + 1, … or one given for each."""
        first = seed if seed is None or isinstance(seed, int) else next(iter(seed), None)
        super().reset(seed=first)
        seeds = self.np_random.integers(_SEEDS, size=self.num_envs)
        if isinstance(seed, int):
            seeds = seed + np.arange(self.num_envs)
        elif seed is not None:
            seeds = np.array(
                [drawn if s is None else s for drawn, s in zip(seeds, seed, strict=True)]
            )
        self._ended = np.zeros(self.num_envs, bool)
        return self.batch.reset(np.arange(self.num_envs), seeds), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """One step of the rows that go on; new episodes in those that had ended."""
        going = ~self._ended
        step = self.batch.step(np.asarray(actions), None if going.all() else going)
        observation = step.observation
        if self._ended.any():
            ids = np.flatnonzero(self._ended)
            seeds = self.np_random.integers(_SEEDS, size=ids.size)
            observation[ids] = self.batch.reset(ids, seeds)
        self._ended = step.terminated | step.truncated
        info = {**self.batch.info, **{f"_{name}": going for name in self.batch.info}}
        return observation, step.reward, step.terminated, step.truncated, info

    def render(self) -> Any:
        """A picture of each, if `render_mode="rgb_array"` was asked for."""
        if self.render_mode != "rgb_array":
            return None
        return tuple(self.batch.render(index) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Lets go of the renderer."""
        self.batch.close()
