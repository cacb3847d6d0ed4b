"""Creates environments of packages that newer versions of their simulator break.

Gymnasium-Robotics asks whether the type of a joint is `in (mjtJoint.mjJNT_HINGE, …)`. The type is a
NumPy integer, which members of newer MuJoCo enumerations do not equal. Its Fetch, Hand and Kitchen
tasks then end in an `AssertionError` without a message. In that module alone, the members become
integers.
"""

import enum
import importlib
import inspect
import types
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from trellis.envs.errors import describe
from trellis.envs.gym.requirements import conflicts
from trellis.envs.lookup import module_of

ROBOTICS = "gymnasium_robotics"
UTILITIES = "gymnasium_robotics.utils.mujoco_utils"


def make_registered(spec: EnvSpec, **options: Any) -> gymnasium.Env:
    """Return `gymnasium.make(spec, **options)`, after repairs that its package needs.

    Raises:
        ValueError: The environment does not have one of the options.
    """
    _require_options(spec, options)
    if isinstance(spec.entry_point, str) and spec.entry_point.startswith(f"{ROBOTICS}."):
        module: Any = importlib.import_module(UTILITIES)
        if isinstance(module.mujoco, types.ModuleType):
            module.mujoco = with_integer_members(module.mujoco, "mjtJoint", "mjtEq")
    try:
        return gymnasium.make(spec, **options)
    except Exception as error:
        hint = conflicts(module_of(spec))
        if not hint:
            raise
        raise RuntimeError(f"{describe(error)}.{hint}") from error


def _require_options(spec: EnvSpec, options: Mapping[str, Any]) -> None:
    """Raise a ValueError for an option that the environment's class does not take."""
    try:
        source = spec.entry_point
        creator = load_env_creator(source) if isinstance(source, str) else source
        parameters = inspect.signature(creator).parameters.values()  # pyright: ignore[reportArgumentType]
    except Exception:  # `gymnasium.make` raises the error of a broken registration.
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name for parameter in parameters} | {"render_mode"}
    general = set(inspect.signature(gymnasium.make).parameters)
    for name in options:
        if name not in known | general:
            raise ValueError(f"{spec.id} has no option {name!r}; it has {', '.join(sorted(known))}")


def with_integer_members(module: types.ModuleType, *names: str) -> Any:
    """Return a module whose enumerations `names` have members that equal NumPy integers.

    The module itself is returned if they do already.
    """
    changed = {}
    for name in names:
        members = {
            key: value for key, value in vars(getattr(module, name)).items() if key[:2] == "mj"
        }
        if not all(value == np.int32(int(value)) for value in members.values()):
            changed[name] = enum.IntEnum(name, {key: int(value) for key, value in members.items()})
    return _View(module, changed) if changed else module


class _View:
    """A module in which some names have other values.

    Args:
        module: The module.
        changed: Values of the names that differ.
    """

    def __init__(self, module: types.ModuleType, changed: dict[str, Any]):
        self.__dict__.update(changed)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
