"""Finds the batch of one of Gymnasium's small environments: classic control and toy text.

A registration is recognized by its entry point, not by its id. So `FrozenLake8x8-v1`, or an id that
you register with other options, has the same batch.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from trellis.envs.batch import BatchEnv
from trellis.envs.classic.acrobot import Acrobot
from trellis.envs.classic.mountain_car import MountainCar, MountainCarContinuous
from trellis.envs.classic.pendulum import Pendulum
from trellis.envs.errors import EnvRaisedError, describe
from trellis.envs.toy_text import pictures
from trellis.envs.toy_text.blackjack import Blackjack
from trellis.envs.toy_text.table import Picture, TableBatch

CLASSES: dict[str, type[BatchEnv]] = {
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": Acrobot,
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": MountainCar,
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": (
        MountainCarContinuous
    ),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": Pendulum,
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": Blackjack,
}
"""Batches by the entry point of Gymnasium's environment."""
TABLES: dict[str, Picture] = {
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": pictures.frozen_lake,
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": pictures.cliff_walking,
    "gymnasium.envs.toy_text.taxi:TaxiEnv": pictures.taxi,
}
"""How to render an environment with a table of transitions, by its entry point."""


class SmallTask(NamedTuple):
    """One of Gymnasium's small environments, as a batch."""

    make: Callable[..., BatchEnv]
    """Function that creates a batch from `num_envs` and options."""
    options: set[str]
    """Names of its options."""


def find_small_task(spec: EnvSpec) -> SmallTask | None:
    """Return the batch of a registration, or None if it is another environment."""
    entry = spec.entry_point
    if not isinstance(entry, str) or spec.additional_wrappers:
        return None
    if entry in CLASSES:
        kind = CLASSES[entry]
        options = set(inspect.signature(kind).parameters) - {"env_id", "num_envs"}
        return SmallTask(functools.partial(_make_class, spec, kind), options)
    if entry in TABLES:
        source = load_env_creator(entry)
        options = set(inspect.signature(source).parameters) - {"render_mode"}
        options |= {"max_episode_steps"}
        return SmallTask(functools.partial(_make_table, spec, TABLES[entry]), options)
    return None


def _make_class(
    spec: EnvSpec, kind: Callable[..., BatchEnv], num_envs: int, **options: Any
) -> BatchEnv:
    limit = {"max_episode_steps": spec.max_episode_steps}
    return kind(spec.id, num_envs, **{**limit, **spec.kwargs, **options})


def _make_table(spec: EnvSpec, picture: Picture, num_envs: int, **options: Any) -> BatchEnv:
    limit = options.pop("max_episode_steps", spec.max_episode_steps)
    try:
        source = gymnasium.make(spec, disable_env_checker=True, **options).unwrapped
    except Exception as error:
        reason = f"making it raised {describe(error)}"
        raise EnvRaisedError(reason, env_id=spec.id, index=0, step=0, seed=None) from error
    return TableBatch(spec.id, num_envs, source, picture, max_episode_steps=limit)
