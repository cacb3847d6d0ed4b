"""The proposal distribution q(·|s) of the first actions of vine's rollouts (Sec. 5.2).

Any q whose support covers that of π_old is valid. The paper uses π_old itself for continuous
actions, the uniform distribution for discrete ones, and every action in small finite spaces.
"""

import enum
import itertools
import math

import numpy as np
from jaxtyping import Float, Shaped

from trellis.config import VineConfig
from trellis.policies.distributions import Categoricals, Distribution

MAX_ENUMERATED = 32
"""Largest number of actions, or combinations of factors, that can all be tried in every state."""


class Proposal(enum.Enum):
    """How the actions of a state are chosen."""

    POLICY = "policy"
    """Sample from π_old."""
    UNIFORM = "uniform"
    """Sample uniformly."""
    EVERY = "every"
    """Take each action once."""


class ProposalError(ValueError):
    """The proposal does not fit the action space; the message names one that does."""


def choose_proposal(settings: VineConfig, distribution: Distribution) -> tuple[Proposal, int]:
    """Return the proposal that the settings name, and K, its number of actions per state.

    "auto" is "policy" for continuous actions; for discrete ones it is "every" if there are at most
    `actions` of them (and they can be enumerated), else "uniform". "every" takes as many actions as
    there are.
    """
    name, actions = settings.proposal, settings.actions
    count = math.prod(distribution.sizes) if isinstance(distribution, Categoricals) else None
    if name == "auto":
        few = count is not None and count <= min(actions, MAX_ENUMERATED)
        name = "policy" if count is None else "every" if few else "uniform"
    proposal = Proposal(name)
    if proposal is Proposal.EVERY:
        if count is None:
            raise ProposalError(
                "continuous actions cannot all be tried: use the proposal 'policy' with vine"
            )
        if count > MAX_ENUMERATED:
            raise ProposalError(
                f"{count} actions are too many to try each in every state (at most"
                f" {MAX_ENUMERATED}): use the proposal 'uniform' or 'policy' with vine"
            )
        return proposal, count
    if proposal is Proposal.UNIFORM and count is None:
        raise ProposalError(
            "a uniform proposal does not cover continuous actions, which the policy samples from"
            " the whole real line: use the proposal 'policy' with vine"
        )
    if actions < 2:
        raise ProposalError(
            f"actions must be at least 2, got {actions}: the self-normalized estimator compares"
            " the actions of a state with each other"
        )
    return proposal, actions


def propose(
    proposal: Proposal,
    distribution: Distribution,
    params: object,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Shaped[np.ndarray, "action state ..."], Float[np.ndarray, "action state"]]:
    """Choose K actions in each of N states and return them with their log q(a|s).

    Args:
        proposal: How to choose.
        distribution: Action distribution of the policy.
        params: Parameters of the distribution in the N states.
        shape: (K, N).
        rng: Source of the noise.
    """
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
