"""Where the first actions of vine's rollouts come from: q(·|s) of Section 5.2.

Any q whose support covers that of π_old will do. The paper takes π_old itself for continuous
actions, the uniform distribution for discrete ones, and every action in small finite spaces.
"""

import enum
import itertools
import math

import numpy as np

from trellis.policies.distributions import Categoricals, Distribution

MOST_ENUMERATED = 32
"""Actions, or combinations of factors, that may all be tried in every state."""


class Proposal(enum.Enum):
    """What the actions of a state are drawn from."""

    POLICY = "policy"
    UNIFORM = "uniform"
    EVERY = "every"
    """No draw at all: each action once."""


class ProposalError(ValueError):
    """These actions cannot be proposed that way; the message says what can."""


def choose_proposal(name: str, distribution: Distribution, actions: int) -> tuple[Proposal, int]:
    """The proposal called `name` and K, the number of actions that it makes of `actions` asked for.

    "auto" is the policy for continuous actions; for discrete ones, every action where they are no
    more than were asked for (and can be enumerated), else uniform.
    """
    count = math.prod(distribution.sizes) if isinstance(distribution, Categoricals) else None
    if name == "auto":
        few = count is not None and count <= min(actions, MOST_ENUMERATED)
        name = "policy" if count is None else "every" if few else "uniform"
    proposal = Proposal(name)
    if proposal is Proposal.EVERY:
        if count is None:
            raise ProposalError(
                "continuous actions cannot all be tried: use the proposal 'policy' with vine"
            )
        if count > MOST_ENUMERATED:
            raise ProposalError(
                f"{count} actions are too many to try each in every state (at most"
                f" {MOST_ENUMERATED}): use the proposal 'uniform' or 'policy' with vine"
            )
        return proposal, count
    if proposal is Proposal.UNIFORM and count is None:
        raise ProposalError(
            "a uniform proposal does not cover continuous actions, which the policy draws from all"
            " of the real line: use the proposal 'policy' with vine"
        )
    if actions < 2:
        raise ProposalError(
            f"actions must be at least 2, got {actions}: the self-normalized estimator compares"
            " the actions of a state, and of one alone it says nothing"
        )
    return proposal, actions


def propose(
    proposal: Proposal,
    distribution: Distribution,
    params: object,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """K actions for each of N states, (K, N, ...), and their log q, (K, N); `shape` is (K, N)."""
    if proposal is Proposal.POLICY:
        action = distribution.sample(params, distribution.noise(rng, shape))
        return action, distribution.log_prob(params, action)
    assert isinstance(distribution, Categoricals)
    sizes = distribution.sizes
    log_q = np.full(shape, -sum(math.log(size) for size in sizes), np.float32)
    if proposal is Proposal.UNIFORM:
        return rng.integers(sizes, size=(*shape, len(sizes))), log_q
    every = np.array(list(itertools.product(*map(range, sizes))), np.int64)
    return np.broadcast_to(every[:, None], (*shape, len(sizes))), log_q
