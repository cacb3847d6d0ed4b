"""Starts of episodes that several of Gymnasium's MuJoCo tasks share.

The random numbers are those of `gymnasium.make(id).reset(seed=seed)`, in the same order.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import TaskOptions, Values


def uniform_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return start positions and velocities with uniform noise within ± reset_noise_scale."""
    noise = np.empty((len(seeds), model.nq + model.nv))
    for row, seed in zip(noise, seeds.tolist(), strict=True):
        np.random.default_rng(seed).random(out=row)
    noise = -o.reset_noise_scale + 2 * o.reset_noise_scale * noise
    return model.qpos0 + noise[:, : model.nq], noise[:, model.nq :]


def normal_start(seeds: NDArray[np.int64], model: Any, o: TaskOptions) -> tuple[Values, Values]:
    """Return start positions with uniform noise and velocities with normal noise.

    `reset_noise_scale` is the bound of the uniform noise and the std of the normal noise.
    """
    qpos, qvel = np.empty((len(seeds), model.nq)), np.empty((len(seeds), model.nv))
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        qpos[row] = rng.uniform(-o.reset_noise_scale, o.reset_noise_scale, model.nq)
        qvel[row] = o.reset_noise_scale * rng.standard_normal(model.nv)
    return model.qpos0 + qpos, qvel
