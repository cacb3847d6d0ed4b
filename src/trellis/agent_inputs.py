"""What an agent is made from: environments, callbacks and checkpoints in the forms users give.

Forms that other libraries use but Trellis does not are errors with the line that works.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trellis import envs, presets
from trellis.config import TrainConfig
from trellis.config.changes import POLICY_ADVICE, POLICY_NAMES, changed
from trellis.envs.jax.functional import FunctionalEnv
from trellis.envs.sources import require_source
from trellis.runs.callback import Callback
from trellis.training.build import MakeEnv
from trellis.training.state import TrainState

CALLABLE_PREFIX = "callable:"
"""Prefix of the name of an environment that was given as a callable."""

EnvSource = str | Callable[..., Any] | FunctionalEnv
"""An environment id, a callable that returns a new `gymnasium.Env`, or a JAX environment."""


def env_name(env: EnvSource) -> str:
    """Return the id of an environment, or the name of a callable with a prefix."""
    if isinstance(env, str):
        return env
    return CALLABLE_PREFIX + getattr(env, "__name__", type(env).__name__)


def batch_maker(env: EnvSource | None, config: TrainConfig) -> MakeEnv | None:
    """Return a function that creates batches from a callable, or None for an id."""
    if env is None or isinstance(env, str):
        return None
    return lambda num_envs: envs.make(env, num_envs, **config.env_options)


def one_env_maker(env: EnvSource, config: TrainConfig) -> Callable[[], envs.BatchEnv] | None:
    """Return a function that creates a batch of one environment from a callable, or None."""
    make = batch_maker(env, config)
    return None if make is None else lambda: make(1)


def names_of(settings: Mapping[str, Any]) -> set[str]:
    """Return the full names of settings in nested dictionaries."""
    names: set[str] = set()
    for name, value in settings.items():
        inner = value if isinstance(value, Mapping) else None
        names |= {name} if inner is None else {f"{name}.{part}" for part in inner}
    return names


def settings_for(env: EnvSource, preset: str | None, settings: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of an environment's preset with the user's changes."""
    step = settings.get("step", {})
    method = step.get("method") if isinstance(step, Mapping) else None
    return changed(presets.resolve(env_name(env), preset, method), settings)


def require_arguments(env: Any, extra: tuple[object, ...], policy: Any) -> None:
    """Raise a TypeError, with the line that works, for arguments in the form of other libraries."""
    first = (env, policy)[isinstance(policy, str)]
    if first in POLICY_NAMES or isinstance(policy, str):
        raise TypeError(f"there is no policy {first!r} here: {POLICY_ADVICE}")
    if extra:
        raise TypeError(
            f"TRPO takes one positional argument, the environment, got {1 + len(extra)}; the others"
            " have names, such as TRPO(env, seed=1)"
        )
    require_source(env)


def callback_list(callback: Any) -> list[Callback]:
    """Return one callback or several as a list."""
    if callback is None:
        return []
    callbacks: list[Any] = [callback]
    if not callable(callback) and isinstance(callback, Iterable):
        callbacks = list(callback)
    if not all(map(callable, callbacks)):
        raise TypeError(
            "callback must be a function of (state, metrics), or several of them, got"
            f" {type(callback).__name__}; trellis.callbacks has some"
        )
    return callbacks


def plan(
    config: TrainConfig,
    state: TrainState,
    total_timesteps: int | None,
    eval_every: int | None,
    log_interval: int | None,
) -> TrainConfig:
    """Return the settings with the end of a training, counted from the agent's first step.

    Args:
        config: Settings of the agent.
        state: State that training starts from.
        total_timesteps: Steps to add. None for those of the settings.
        eval_every: Steps between evaluations. None for those of the settings.
        log_interval: Iterations between lines, which is only checked.
    """
    total = config.total_steps if total_timesteps is None else total_timesteps
    if isinstance(total, bool | str) or total != int(total) or total < 1:
        raise ValueError(f"total_timesteps must be a whole number of at least 1, got {total!r}")
    if log_interval is not None and log_interval < 1:
        raise ValueError(f"log_interval must be at least 1, got {log_interval}")
    most = config.max_iterations if total_timesteps is None else None
    return dataclasses.replace(
        config,
        total_steps=state.steps + int(total),
        max_iterations=None if most is None else state.iteration + most,
        eval_every=config.eval_every if eval_every is None else eval_every,
    )
