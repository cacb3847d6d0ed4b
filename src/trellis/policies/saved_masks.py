"""Joins observations with action masks, for policies that act outside of a batch.

A policy that was trained with masks has them as a key of its observation space. Where the
environment keeps its mask elsewhere, `SavedPolicy.act` gets it as an argument.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trellis.masks import (
    MASK_KEY,
    OBSERVATION_KEY,
    add_mask,
    factor_sizes,
    first_illegal,
    mask_size,
    read_mask,
    without_mask,
)
from trellis.spaces import Spaces, is_single


def with_mask(observation: Any, mask: Any, spaces: Spaces) -> Any:
    """Return an observation in the form of its space, which may have a key for the mask.

    Args:
        observation: One observation or a batch.
        mask: Its mask, or a row for each; None if it is a part of the observation.
        spaces: Observation and action space of the policy.

    Raises:
        ValueError: The policy has masks and there is none, or the other way round.
    """
    space, actions = spaces
    if not mask_size(space):
        if mask is not None:
            raise ValueError("it was trained without action masks")
        return observation
    if isinstance(observation, Mapping) and MASK_KEY in observation and mask is None:
        return observation
    if mask is None:
        raise ValueError(
            "it was trained with action masks: pass the mask as action_mask=…, or in the"
            f" observation's key {MASK_KEY!r}"
        )
    rest = {key for key in getattr(space, "spaces", {}) if key != MASK_KEY}
    if rest == {OBSERVATION_KEY} and not isinstance(observation, Mapping):
        observation = {OBSERVATION_KEY: observation}
    if is_single(observation, without_mask(space)):
        return add_mask(observation, read_mask(mask, actions))
    return add_mask(observation, np.stack([read_mask(row, actions) for row in mask]))


def require_legal(observation: Any, spaces: Spaces) -> None:
    """Raise a ValueError if the mask of an observation of a batch allows no action."""
    size = mask_size(spaces[0])
    if size:
        masks = np.reshape(observation[MASK_KEY], (-1, size))
        row = first_illegal(masks, factor_sizes(spaces[1]))
        if row is not None:
            raise ValueError(f"the mask of row {row} allows no action")
