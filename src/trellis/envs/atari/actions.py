"""Maps the actions of a policy to ALE's numbers for its 18 actions (Sec. 8.2)."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

FACTORS = (3, 3, 2)
"""Sizes of the paper's factored action: (none, right, left), (none, up, down), (none, fire)."""
# ALE's numbers, indexed by horizontal, vertical and fire.
FACTORED = np.array(
    [[[0, 1], [2, 10], [5, 13]], [[3, 11], [6, 14], [8, 16]], [[4, 12], [7, 15], [9, 17]]]
)


class ActionTable:
    """Table of the actions that a policy can choose from in a game.

    Args:
        name: "minimal", "full" or "factored".
        minimal: Numbers of the actions that have an effect in this game.
    """

    def __init__(self, name: str, minimal: tuple[int, ...]):
        tables = {"minimal": np.array(minimal), "full": np.arange(18), "factored": FACTORED}
        if name not in tables:
            raise ValueError(f"actions must be minimal, full or factored, got {name!r}")
        self._numbers = tables[name]
        self.space: spaces.Space[Any] = (
            spaces.MultiDiscrete(list(FACTORS))
            if name == "factored"
            else spaces.Discrete(len(self._numbers))
        )

    def numbers(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return ALE's number for each action; actions are (n,), or (n, 3) if factored."""
        table = self._numbers
        return table[tuple(actions.T)] if table.ndim > 1 else table[actions]
