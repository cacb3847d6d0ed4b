"""Refuses environments in a form that cannot be copied, with the line that works.

Trellis runs many copies of an environment side by side. So it needs an id or a callable that makes
one, not an environment that exists already.
"""

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from trellis.envs.batch import BatchEnv
from trellis.envs.jax.suites import is_functional


def require_source(env: Any, call: str = "TRPO({})") -> None:
    """Raise a TypeError unless `env` is an id, a `FunctionalEnv`, or a callable that makes one.

    Args:
        env: What the user gave.
        call: The user's call with `{}` for its arguments, to show the line that works.
    """
    if is_functional(env):
        return
    if isinstance(env, list | tuple):
        first = env[0] if env else None
        name = _name(first) if callable(first) else "make_env"
        works = call.format(f'{name}, sampling={{"num_envs": {max(len(env), 1)}}}')
        raise TypeError(
            f"env is a {type(env).__name__} of {len(env)}, but one callable is enough: Trellis"
            f" calls it for every copy. Write {works}"
        )
    if isinstance(env, VectorEnv | BatchEnv):
        source = _source(env)
        works = call.format(f'{source}, sampling={{"num_envs": {env.num_envs}}}')
        raise TypeError(
            f"env is a {type(env).__name__}, but Trellis makes its own batches, which it can reset"
            f" one by one. Write {works}"
        )
    if isinstance(env, gymnasium.Env):
        works = call.format(_source(env))
        raise TypeError(
            f"env is a {type(env.unwrapped).__name__} object, but Trellis needs many copies of it."
            f" Write {works}"
        )
    if not isinstance(env, str) and not callable(env):
        raise TypeError(
            f"env must be an id such as {call.format(repr('CartPole-v1'))} or a callable that"
            f" returns a new gymnasium.Env, got {type(env).__name__}"
        )


def _source(env: Any) -> str:
    """Return the argument that stands for an environment object: its id, or its class."""
    spec = getattr(env, "spec", None)
    name = getattr(env, "env_id", None) or (spec.id if spec is not None else None)
    if name is not None and (spec is None or not spec.additional_wrappers):
        return f'"{name}"'
    if isinstance(env, gymnasium.Wrapper) or not isinstance(env, gymnasium.Env):
        return "make_env, where make_env is a function that returns a new environment"
    return type(env).__name__


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "make_env")
    return name if name.isidentifier() else "make_env"
