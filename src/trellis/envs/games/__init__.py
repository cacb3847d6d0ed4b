"""Small games of our own as NumPy batches, for kinds of actions that other tasks do not have."""

import importlib
from typing import Any

GAMES = {
    "trellis/KnightsTour-v0": "knights_tour:KnightsTour",
    "trellis/Carry-v0": "carry:Carry",
}
"""Module and class of each game, by its id."""


def game_class(env_id: str) -> Any:
    """Return the class of a game: a `BatchEnv` that takes `num_envs` and options."""
    module, _, name = GAMES[env_id].partition(":")
    return getattr(importlib.import_module(f"trellis.envs.games.{module}"), name)
