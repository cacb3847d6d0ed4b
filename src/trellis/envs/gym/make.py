"""Any Gymnasium environment as a batch: `make_gym` is the door.

It takes an id or a callable and returns one object per row in this process (`gym_rows.py`), worker
processes (`gym_workers.py`) or a vector environment that exists already (`gym_vector.py`). Episodes
are a pure function of seed and actions: nothing resets by itself, `reset` hands each row its seed.
"""

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from trellis.envs.batch import BatchEnv
from trellis.envs.gym.rows import GymBatch

EnvFactory = Callable[..., gymnasium.Env]


def make_gym(
    env: str | EnvFactory,
    num_envs: int,
    *,
    workers: int = 0,
    vector: bool | None = None,
    worker_timeout_seconds: float = 60.0,
    **kwargs: Any,
) -> BatchEnv:
    """A batch of any Gymnasium environment.

    Args:
        env: an id that `gymnasium.make` knows, or a callable that returns a new `gymnasium.Env`.
        num_envs: rows of the batch.
        workers: 0 for this process, else so many processes that share the rows.
        vector: True for the id's own vector environment, False for one object per row; None takes
            the former where it can be reset row by row with a seed each.
        worker_timeout_seconds: how long a worker may take for one answer.
        **kwargs: for the environment. `max_episode_steps` works for callables, too.
    """
    if workers < 0:
        raise ValueError(f"workers must be 0 (this process) or more, got {workers}")
    if workers and vector:
        raise ValueError("a vector environment runs in this process: leave out workers or vector")
    if isinstance(env, str) and not workers and vector is not False:
        from trellis.envs.gym.vector import make_vector

        batch = make_vector(env, spec_of(env), num_envs, insist=vector is True, **kwargs)
        if batch is not None:
            return batch
    elif vector:
        raise ValueError("vector=True needs the id of an environment, not a callable")
    factory, limit = row_factory(env, kwargs)
    if workers:
        from trellis.envs.gym.workers import WorkerBatch

        return WorkerBatch(
            factory,
            num_envs,
            name=env if isinstance(env, str) else getattr(env, "__qualname__", "environment"),
            workers=workers,
            timeout_seconds=worker_timeout_seconds,
            max_episode_steps=limit,
        )
    return GymBatch([factory] * num_envs, max_episode_steps=limit)


def row_factory(
    env: str | EnvFactory, kwargs: dict[str, Any]
) -> tuple[Callable[[], gymnasium.Env], int | None]:
    """What makes the environment of one row, and a time limit that is left to the batch."""
    if isinstance(env, str):
        # The border of the batch checks every step; Gymnasium's checker would only look at one.
        options = {"disable_env_checker": True, **kwargs}
        if spec_of(env).entry_point is None:
            return lambda: _make_vector_row(env, kwargs), kwargs.get("max_episode_steps")
        return lambda: gymnasium.make(env, **options), None
    if not callable(env):
        raise TypeError(f"an environment is an id or a callable, got {type(env).__name__}")
    options = dict(kwargs)
    limit = options.pop("max_episode_steps", None)
    return lambda: env(**options), limit


def spec_of(env_id: str) -> EnvSpec:
    """The registered description of an id, which may be `module:id` as in `gymnasium.make`."""
    module, colon, name = env_id.rpartition(":")
    if colon:
        importlib.import_module(module)
    return gymnasium.spec(name)


def _make_vector_row(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env:
    from trellis.envs.gym.vector import VectorRow

    mode = "vector_entry_point"
    return VectorRow(gymnasium.make_vec(env_id, 1, vectorization_mode=mode, **kwargs))
