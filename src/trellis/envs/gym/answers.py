"""Checks what a Gymnasium environment returns against its space, and copies it into arrays.

An observation space is a tree of Dict and Tuple spaces whose leaves are arrays of a fixed shape. A
batch keeps one array per leaf, with one row per environment. Writing an observation into its row
checks its structure, shape and kind, and copies it, so an environment may reuse its arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.envs.batch import Observation
from trellis.envs.errors import BadShapeError, BadValueError, EnvError

FIXED_SHAPE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""Spaces whose elements are arrays of a fixed shape."""
CONVERTIBLE = {"f": "f", "i": "iub", "u": "iub", "b": "b"}
"""Kinds of numbers that are converted to a kind; only the width may change, not the value."""


class InvalidAnswerError(Exception):
    """An environment returned something that is not in its space.

    Attributes:
        kind: The `EnvError` that the batch raises for it.
    """

    def __init__(self, reason: str, kind: type[EnvError] = BadShapeError):
        self.kind = kind
        super().__init__(reason)


@dataclass(frozen=True)
class Leaf:
    """One array of an observation, and its space."""

    name: str
    """Name in error messages, such as `observation['camera'][0]`."""
    space: spaces.Space[Any]
    """Space of the array."""
    shape: tuple[int, ...]
    """Shape of the array."""
    dtype: np.dtype[Any]
    """Data type of the array."""

    def write(self, array: NDArray[Any], index: int, value: Any) -> None:
        """Copy `value` into row `index` of `array`; raise an error if it is not in the space."""
        if type(value) is not np.ndarray:
            try:
                value = np.asarray(value)
            except Exception as error:
                raise InvalidAnswerError(
                    f"{self.name} is a {type(value).__name__}, which cannot become an array:"
                    f" {error}"
                ) from error
        if value.shape != self.shape:
            raise InvalidAnswerError(
                f"{self.name} has shape {value.shape}, but its space has shape {self.shape}"
            )
        if value.dtype != self.dtype:
            value = self._convert(value)
        # Categories must be in range, because they are encoded one-hot. Bounds of a Box are not
        # checked.
        if not (isinstance(self.space, spaces.Box) or self.space.contains(value)):
            raise InvalidAnswerError(
                f"{self.name} is {value}, which is outside of {self.space}", BadValueError
            )
        array[index] = value

    def _convert(self, value: NDArray[Any]) -> NDArray[Any]:
        if value.dtype.kind not in CONVERTIBLE.get(self.dtype.kind, ""):
            raise InvalidAnswerError(
                f"{self.name} has dtype {value.dtype}, but its space has dtype {self.dtype}"
                " (only the width of a number is converted, not its kind)"
            )
        # A number too large for float32 becomes infinity, which the batch reports.
        with np.errstate(over="ignore"):
            converted = value.astype(self.dtype)
        if self.dtype.kind in "iu" and not np.array_equal(converted, value):
            raise InvalidAnswerError(
                f"{self.name} has values of {value.dtype} that do not fit in {self.dtype}"
            )
        return converted


class ObservationArrays:
    """Converter between observations and arrays, one array per leaf of their space.

    Args:
        space: Observation space of one environment.
    """

    def __init__(self, space: spaces.Space[Any]):
        self._full, self.left_out = space, list(_texts_of(space))
        """Space of the environment, and the names of its texts, which are left out."""
        self.space = _without_texts(space) if self.left_out else space
        self.leaves = list(_leaves_of(self.space))
        self._is_array = not isinstance(space, spaces.Dict | spaces.Tuple)

    def empty(self, num_envs: int) -> list[NDArray[Any]]:
        """Return arrays of zeros, one per leaf, with one row per environment."""
        return [np.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in self.leaves]

    def write(self, arrays: Sequence[NDArray[Any]], index: int, observation: Any) -> None:
        """Copy one observation into row `index` of the arrays."""
        parts = [observation] if self._is_array else list(_parts_of(self._full, observation))
        for leaf, array, part in zip(self.leaves, arrays, parts, strict=True):
            leaf.write(array, index, part)

    def tree(self, arrays: Sequence[NDArray[Any]]) -> Observation:
        """Return the arrays in the structure of the space."""
        return _build(self.space, iter(arrays))


def check_step(answer: Any) -> tuple[Any, float, bool, bool, Any]:
    """Return (observation, reward, terminated, truncated, info), or raise an error if invalid."""
    check_parts("step", answer, ("observation", "reward", "terminated", "truncated", "info"))
    observation, reward, terminated, truncated, info = answer
    return (
        observation,
        reward if type(reward) is float else _number("reward", reward),
        terminated if type(terminated) is bool else _flag("terminated", terminated),
        truncated if type(truncated) is bool else _flag("truncated", truncated),
        info,
    )


def check_parts(method: str, answer: Any, parts: Sequence[str]) -> None:
    """Raise an error if `answer` is not a tuple of these parts."""
    if not isinstance(answer, tuple) or len(answer) != len(parts):
        raise InvalidAnswerError(
            f"{method} must return ({', '.join(parts)}), as Gymnasium 1.x requires"
        )


def _number(what: str, value: Any) -> float:
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "fiub":
        raise InvalidAnswerError(
            f"{what} must be one number, got {type(value).__name__} of shape {array.shape} and"
            f" dtype {array.dtype}"
        )
    return float(array)


def _flag(what: str, value: Any) -> bool:
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biu":
        raise InvalidAnswerError(f"{what} must be True or False, got {value!r}")
    return bool(array)


def check_action_space(space: spaces.Space[Any], env_id: str) -> None:
    """Raise `ValueError` for action spaces that no policy can sample from."""
    if isinstance(space, spaces.Dict | spaces.Tuple) and space.spaces:
        for _, part in _children(space):
            check_action_space(part, env_id)
    elif not isinstance(space, FIXED_SHAPE):
        raise ValueError(
            f"{env_id} has the action space {space}, which is not supported; supported are Box,"
            " Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these. Wrap the"
            " environment in a gymnasium.ActionWrapper that offers one of these."
        )


def _leaves_of(space: spaces.Space[Any], name: str = "observation") -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, child in _children(space):
            yield from _leaves_of(child, f"{name}[{key!r}]")
    elif isinstance(space, FIXED_SHAPE) and space.shape is not None and space.dtype is not None:
        yield Leaf(name, space, space.shape, np.dtype(space.dtype))
    else:
        raise ValueError(
            f"the observation space {space} has no fixed shape and is not supported. Wrap the"
            " environment in a gymnasium.ObservationWrapper with a Box, Discrete, MultiDiscrete or"
            " MultiBinary space, or a Dict or Tuple of these"
        )


def _is_text(space: spaces.Space[Any]) -> bool:
    """Return whether elements are texts, as in `spaces.Text` and MiniGrid's missions."""
    return isinstance(space, spaces.Text) or getattr(space.dtype, "kind", "") == "U"


def _texts_of(space: spaces.Space[Any], name: str = "observation") -> Iterator[str]:
    """Yield the names of the texts in a Dict or Tuple."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, child in _children(space):
            inner = f"{name}[{key!r}]"
            yield from [inner] if _is_text(child) else _texts_of(child, inner)


def _without_texts(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a Dict or Tuple without its texts; other spaces are returned unchanged."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return space
    kept = [(key, _without_texts(part)) for key, part in _children(space) if not _is_text(part)]
    if isinstance(space, spaces.Dict):
        return spaces.Dict({str(key): part for key, part in kept})
    return spaces.Tuple([part for _, part in kept])


def check_reward_space(env: Any, env_id: str) -> None:
    """Raise `ValueError` if an environment says that its rewards are vectors."""
    shape = getattr(getattr(env, "reward_space", None), "shape", None)
    if shape and shape != (1,):
        raise ValueError(many_rewards(env_id, shape))


def many_rewards(env_id: str, shape: tuple[int, ...]) -> str:
    """Return the message for an environment whose rewards are vectors."""
    return (
        f"{env_id} has a reward of shape {shape} (several objectives), but training needs one"
        " number. Weight the objectives with mo_gymnasium.wrappers.LinearReward(env, weight=...)"
        " and register that environment under an id of your own."
    )


def _children(space: spaces.Dict | spaces.Tuple) -> list[tuple[str | int, spaces.Space[Any]]]:
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def _parts_of(space: spaces.Space[Any], value: Any, name: str = "observation") -> Iterator[Any]:
    """Yield the part of an observation for each leaf; raise an error if its structure is wrong."""
    if isinstance(space, spaces.Dict):
        keys = set(value) if isinstance(value, Mapping) else None
        if keys != set(space.spaces):
            got = type(value).__name__ if keys is None else f"keys {sorted(keys, key=str)}"
            raise InvalidAnswerError(
                f"{name} has {got}, but its space has the keys {sorted(space.spaces)}"
            )
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise InvalidAnswerError(
                f"{name} must be a tuple of {len(space.spaces)}, like its space"
            )
    else:
        yield value
        return
    parts: Any = value
    for key, child in _children(space):
        if _is_text(child):
            continue
        yield from _parts_of(child, parts[key], f"{name}[{key!r}]")


def _build(space: spaces.Space[Any], remaining: Iterator[NDArray[Any]]) -> Observation:
    if isinstance(space, spaces.Dict):
        return {key: _build(child, remaining) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(child, remaining) for child in space.spaces)
    return next(remaining)
