"""Reads action masks: which discrete actions are legal in a state.

A mask has one entry per choice of each factor of the action, side by side: n entries for
Discrete(n), Σ nᵢ for MultiDiscrete, 2n for MultiBinary(n). Environments deliver it as the reserved
key `action_mask` of their observation. Networks never see that key.

    observation = {"observation": board, "action_mask": [1, 0, 1]}
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trellis.arrays import Array

MASK_KEY = "action_mask"
"""Key of an observation, or of an `info`, that holds the mask."""
OBSERVATION_KEY = "observation"
"""Key of an observation that was not a Dict before it got a mask."""

Space: TypeAlias = spaces.Space[Any]
Mask: TypeAlias = NDArray[np.bool_]


class MaskError(ValueError):
    """A mask does not fit the action space."""


def factor_sizes(space: Space) -> tuple[int, ...]:
    """Return the number of choices of each discrete factor of an action space, in order.

    Continuous parts have none.

    Example:
        >>> factor_sizes(spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0)]))
        (3,)
    """
    match space:
        case spaces.Discrete():
            return (int(space.n),)
        case spaces.MultiDiscrete():
            return tuple(int(n) for n in space.nvec.ravel())
        case spaces.MultiBinary():
            return (2,) * int(np.prod(space.shape))
        case spaces.Dict() | spaces.Tuple():
            return tuple(size for _, part in parts_of(space) for size in factor_sizes(part))
        case _:
            return ()


def parts_of(space: spaces.Dict | spaces.Tuple) -> list[tuple[Any, Space]]:
    """Return the keys and parts of a Dict or Tuple space, in order."""
    return list(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def mask_size(observation_space: Space) -> int:
    """Return the number of entries of the mask in observations of a space; 0 without a mask."""
    if not isinstance(observation_space, spaces.Dict) or MASK_KEY not in observation_space.spaces:
        return 0
    return int(np.prod(observation_space[MASK_KEY].shape or (1,)))


def without_mask(observation_space: Space) -> Space:
    """Return the space of observations without their mask."""
    if not mask_size(observation_space):
        return observation_space
    assert isinstance(observation_space, spaces.Dict)
    rest = {key: part for key, part in observation_space.spaces.items() if key != MASK_KEY}
    return spaces.Dict(rest)


def with_mask(observation_space: Space, size: int) -> spaces.Dict:
    """Return the space of observations to which a mask of this size is added."""
    inner = observation_space
    rest = inner.spaces if isinstance(inner, spaces.Dict) else {OBSERVATION_KEY: inner}
    return spaces.Dict({**rest, MASK_KEY: spaces.MultiBinary(size)})


def add_mask(observation: Any, mask: Any) -> dict[str, Any]:
    """Return an observation with its mask, as `with_mask` describes it."""
    inner = observation if isinstance(observation, Mapping) else {OBSERVATION_KEY: observation}
    return {**inner, MASK_KEY: mask}


def require_mask_fits(observation_space: Space, action_space: Space) -> None:
    """Raise `MaskError` if observations have a mask that does not fit the actions."""
    found, wanted = mask_size(observation_space), sum(factor_sizes(action_space))
    if found and found != wanted:
        reason = (
            f"the mask in the key {MASK_KEY!r} of the observations has {found} entries, but the"
            f" action space {action_space} has {wanted} choices"
            if wanted
            else f"the observation key {MASK_KEY!r} is reserved for masks of discrete actions, but"
            f" the action space is {action_space}: give the key another name"
        )
        raise MaskError(reason)


def read_mask(value: Any, space: Space) -> Mask:
    """Return a mask as one flat array of booleans.

    Args:
        value: Mask of one action: an array of 0 and 1, or a Dict or tuple of arrays in the
            structure of the action space, or one array per factor.
        space: Action space.

    Raises:
        MaskError: The value does not fit the space.
    """
    wanted = sum(factor_sizes(space))
    try:
        leaves = [np.asarray(leaf).ravel() for leaf in _leaves(value, space)]
        mask = np.concatenate(leaves)
    except (TypeError, ValueError, KeyError) as error:
        raise MaskError(f"the action mask must be an array of 0 and 1, got {value!r}") from error
    if mask.size != wanted:
        raise MaskError(f"the action mask has {mask.size} entries, but {space} has {wanted}")
    if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
        raise MaskError(f"the action mask must hold only 0 and 1, got {value!r}")
    return mask.astype(bool)


def _leaves(value: Any, space: Space) -> Iterator[Any]:
    if isinstance(value, Mapping):
        if not isinstance(space, spaces.Dict):
            raise TypeError(value)
        for key, part in space.spaces.items():
            if factor_sizes(part):
                yield from _leaves(value[key], part)
    elif isinstance(value, tuple | list) and not all(np.ndim(leaf) == 0 for leaf in value):
        if isinstance(space, spaces.Tuple):
            discrete = [part for part in space.spaces if factor_sizes(part)]
            kept = [leaf for leaf in value if leaf is not None]
            for leaf, part in zip(kept, discrete, strict=True):
                yield from _leaves(leaf, part)
        else:
            yield from value
    else:
        yield value


def first_illegal(masks: NDArray[Any], sizes: tuple[int, ...]) -> int | None:
    """Return the first row of some masks in which a factor has no legal choice, or None.

    Args:
        masks: Masks, (rows, entries).
        sizes: Number of choices of each factor.
    """
    good = has_choices(masks, sizes)
    return None if good.all() else int(np.argmin(good))


def has_choices(masks: Array, sizes: tuple[int, ...]) -> Array:
    """Return whether every factor of an action has a legal choice, (...).

    Args:
        masks: Masks of NumPy or JAX, (..., entries).
        sizes: Number of choices of each factor.
    """
    legal = masks != 0
    good, start = legal[..., :0].all(axis=-1), 0
    for size in sizes:
        good &= legal[..., start : start + size].any(axis=-1)
        start += size
    return good


def make_legal(action: Any, space: Space, mask: NDArray[Any]) -> Any:
    """Return an action of the environment in which illegal choices are replaced by legal ones.

    An illegal choice becomes the next legal one, so that random actions stay a function of their
    seed.

    Args:
        action: Action of `space`.
        space: Action space.
        mask: Flat mask.
    """
    match space:
        case spaces.Dict() | spaces.Tuple():
            start, made = 0, {}
            for key, part in parts_of(space):
                stop = start + sum(factor_sizes(part))
                made[key] = make_legal(action[key], part, mask[start:stop])
                start = stop
            return made if isinstance(space, spaces.Dict) else tuple(made.values())
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            sizes = factor_sizes(space)
            first = np.ravel(getattr(space, "start", 0))
            index = np.ravel(action) - first
            stops = np.cumsum(sizes)
            for factor, (size, stop) in enumerate(zip(sizes, stops, strict=True)):
                order = (index[factor] + np.arange(size)) % size
                legal = order[mask[stop - size : stop][order] != 0]
                index[factor] = legal[0] if len(legal) else index[factor]
            made = np.reshape(index + first, np.shape(action)).astype(space.dtype)
            return made[()]
        case _:
            return action
