"""Random streams: each a pure function of (seed, purpose, iteration, shard).

Nothing here carries state from one iteration to the next, and no stream is shared between two uses.
Common random numbers, exact resume and the exact recovery of a lost worker follow from this rule.
"""

import enum

import numpy as np


class Purpose(enum.IntEnum):
    """What a stream is for. The numbers are part of every recorded run: never reuse one."""

    POLICY_INIT = 0
    CRITIC_INIT = 1
    ACTIONS = 2
    RESETS = 3
    FISHER_ROWS = 4
    CRITIC_BATCHES = 5
    EVALUATION = 6
    ROLLOUT_SET = 7
    BRANCHES = 8
    SEARCH = 9


def stream(
    seed: int, purpose: Purpose, *, iteration: int = 0, shard: int = 0
) -> np.random.Generator:
    """The generator for one purpose in one iteration of one shard."""
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(int(purpose), iteration, shard))
    )
