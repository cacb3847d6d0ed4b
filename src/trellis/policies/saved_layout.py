"""What a checkpoint must hold for its policy to act, and what it says about that policy.

The settings and spaces of a checkpoint imply the name, type, shape and range of every array. A
checkpoint that does not fit them is refused before its arrays are read.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from trellis.array_file import ArraySpec
from trellis.checkpoint_format import (
    FLOATS,
    Expected,
    Header,
    MismatchError,
    require_spec,
)
from trellis.config import TrainConfig
from trellis.policies.build import build_policy, respect_mask
from trellis.policies.policy import Policy
from trellis.space_json import SpaceFormatError, space_from_json, space_from_text, space_to_json
from trellis.spaces import Spaces, moments_shape, observation_encoder
from trellis.strict_json import INT64, shown

KNOWN_ARRAYS = re.compile(
    r"(best_)?theta|discounted_return|best_member"
    r"|(observation|return|best|best_member)_moments/(count|mean|squares)"
    r"|(critic|path|search|env)/[\w.-]{1,200}"
)
"""Names of the arrays that a checkpoint may hold."""


class Layout(NamedTuple):
    """What a checkpoint must hold for its policy to act."""

    policy: Policy
    spaces: Spaces
    expected: dict[str, Expected]
    """Type, shape and range of the arrays that there are."""


def read_layout(
    header: Header, config: TrainConfig, policy: Policy | None, spaces: Spaces | None
) -> Layout:
    """Return what the settings imply; raise `MismatchError` if the arrays do not fit."""
    specs, values = header.specs, header.values
    require_known(specs)
    spaces = spaces or read_spaces(values, config.env)
    try:
        policy = policy or build_policy(config.policy, *spaces)
        policy = respect_mask(policy, spaces[0])
        shape = moments_shape(observation_encoder(spaces[0], config.policy.pictures)[0])
    except ValueError as error:
        raise MismatchError(
            f"the settings do not fit the spaces of {config.env}: {error}"
        ) from error
    if "theta" not in specs:
        raise MismatchError("this checkpoint has no array theta, the parameters of the policy")
    require_same_policy(values, int(np.prod(specs["theta"].shape)), policy)
    groups = {"observation_moments": "theta", "best_moments": "best_theta"}
    expected = {}
    for moments, theta in groups.items():
        if theta in specs:
            expected[theta] = Expected(FLOATS, (policy.num_params,))
            expected |= expected_moments(moments, shape)
    require_specs(specs, expected)
    return Layout(policy, spaces, expected)


def expected_moments(name: str, shape: tuple[int, ...]) -> dict[str, Expected]:
    """Return what the arrays of moments must be: counts and squares are not negative."""
    return {
        f"{name}/count": Expected(FLOATS, (), 0.0),
        f"{name}/mean": Expected(FLOATS, shape),
        f"{name}/squares": Expected(FLOATS, shape, 0.0),
    }


def require_known(names: Collection[str]) -> None:
    """Raise `MismatchError` if a checkpoint holds an array with an unknown name."""
    for name in names:
        if not KNOWN_ARRAYS.fullmatch(name):
            raise MismatchError(f"this checkpoint holds an unknown array {shown(name)}")


def require_specs(specs: Mapping[str, Any], expected: Mapping[str, Expected]) -> None:
    """Raise `MismatchError` unless there are all of these arrays, with their type and shape."""
    for name, wanted in expected.items():
        if name not in specs:
            raise MismatchError(f"this checkpoint has no array {name}, which its settings need")
        require_spec(name, specs[name], wanted)


def specs_of(arrays: Mapping[str, np.ndarray]) -> dict[str, ArraySpec]:
    """Return type and shape of each array."""
    return {name: ArraySpec(array.dtype, array.shape) for name, array in arrays.items()}


def read_count(values: Mapping[str, Any], name: str) -> int:
    """Return a count of a checkpoint, such as its steps."""
    value = values.get(name)
    if type(value) is not int or not 0 <= value < INT64:
        raise MismatchError(f"{name} of this checkpoint must be a count, got {shown(value)}")
    return value


def describe(spaces: Spaces, policy: Policy) -> dict[str, Any]:
    """Return what a checkpoint says about its environment and about what θ parametrizes."""
    observation_space, action_space = spaces
    texts = {"observation space": str(observation_space), "action space": str(action_space)}
    return {
        "spaces": texts,
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(action_space),
        "policy": _kind(policy),
    }


def read_spaces(values: Mapping[str, Any], env_id: str) -> Spaces:
    """Return the spaces that a checkpoint describes, in today's format or in the first one."""
    try:
        observation, action = values.get("observation_space"), values.get("action_space")
        if observation and action:
            return space_from_json(observation), space_from_json(action)
        texts = values["spaces"]
        observation_space = space_from_text(texts["observation space"], bounds_matter=False)
        return observation_space, space_from_text(texts["action space"])
    except (SpaceFormatError, KeyError, TypeError) as error:
        raise MismatchError(
            f"this checkpoint does not describe the spaces of {env_id} ({error}): pass them as"
            " SavedPolicy.load(path, spaces=(observation_space, action_space))"
        ) from error


def require_same_policy(values: Mapping[str, Any], num_params: int, policy: Policy) -> None:
    """Raise `MismatchError` if a checkpoint's θ does not belong to this policy."""
    ours = _kind(policy)
    saved = values.get("policy", ours)  # The first checkpoints did not describe the policy.
    if saved != ours or num_params != policy.num_params:
        raise MismatchError(
            f"this checkpoint holds a policy of {num_params} parameters"
            f" ({shown(saved, 200, quotes=False)}), the policy here has {policy.num_params}"
            f" ({shown(ours, 200, quotes=False)}): pass the one that it was trained with, from"
            " Python, as TRPO.load(path, policy=…)"
        )


def _kind(policy: Policy) -> str:
    """Return the kinds of network and distribution, and the shapes of the weights."""
    shapes = " ".join("×".join(map(str, shape)) for shape in policy.network.shapes)
    return f"{type(policy.network).__qualname__} {shapes}, {type(policy.distribution).__qualname__}"
