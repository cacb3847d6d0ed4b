"""Creates a batch of any Gymnasium environment: `make_gym`.

The batch has one object per environment, in this process (`batch.py`) or in worker processes
(`worker_batch.py`). An episode is a pure function of its seed and actions: no environment resets
automatically, and `reset` seeds each environment.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from trellis.envs.batch import BatchEnv
from trellis.envs.gym.batch import GymBatch
from trellis.envs.gym.compatibility import make_registered

EnvFactory = Callable[..., gymnasium.Env]
"""A callable that returns a new environment."""


def make_gym(
    env: str | EnvFactory,
    num_envs: int,
    *,
    workers: int = 0,
    worker_timeout_seconds: float = 60.0,
    **kwargs: Any,
) -> BatchEnv:
    """Return a batch of any Gymnasium environment.

    Args:
        env: An id that `gymnasium.make` knows, or a callable that returns a new `gymnasium.Env`.
        num_envs: Size of the batch.
        workers: Number of processes that share the environments; 0 for this process.
        worker_timeout_seconds: Time limit for one answer of a worker.
        **kwargs: Arguments of the environment, and `max_episode_steps`.

    Example:
        >>> import numpy as np
        >>> batch = make_gym("MountainCar-v0", num_envs=2)
        >>> batch.reset(np.arange(2), seeds=np.arange(2)).shape
        (2, 2)
    """
    if workers < 0:
        raise ValueError(f"workers must be 0 (this process) or more, got {workers}")
    limit, name = None, env if isinstance(env, str) else getattr(env, "__qualname__", "environment")
    if isinstance(env, str):
        # The specification, because the id may be registered in this process only. The batch
        # checks every step; Gymnasium's checker would check only the first.
        options = {"disable_env_checker": True, **kwargs}
        factory = functools.partial(make_registered, _spec(env), **options)
    elif callable(env):
        limit = kwargs.pop("max_episode_steps", None)
        factory = functools.partial(env, **kwargs)
    else:
        raise TypeError(f"env must be an id or a callable, got {type(env).__name__}")
    if not workers:
        return GymBatch([factory] * num_envs, max_episode_steps=limit, name=name)
    from trellis.envs.gym.worker_batch import WorkerBatch

    return WorkerBatch(
        factory,
        num_envs,
        name=name,
        workers=workers,
        timeout_seconds=worker_timeout_seconds,
        max_episode_steps=limit,
    )


def _spec(env_id: str) -> EnvSpec:
    """Return the registration of an id, which may be `module:id` as in `gymnasium.make`."""
    module, colon, name = env_id.rpartition(":")
    if colon:
        importlib.import_module(module)
    spec = gymnasium.spec(name)
    if spec.entry_point is None:
        raise ValueError(
            f"{name} has only a vector environment (vector_entry_point), which cannot reset its"
            " environments one by one. Pass a callable that returns one gymnasium.Env instead."
        )
    return spec
