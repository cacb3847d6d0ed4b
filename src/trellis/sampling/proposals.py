"""Chooses the first actions of vine's rollouts from a proposal distribution q(·|s) (Sec. 5.2).

Any q whose support covers the support of π_old is valid. The paper uses π_old itself for continuous
actions, the uniform distribution for discrete actions, and every action in small finite spaces. A
mixture of both halves is ours: of 18 actions, four uniform ones rarely include the policy's own.

With action masks, uniform means uniform over the legal actions. Enumeration lists illegal actions
too, so that all states have K; `is_legal` tells them, and no rollout executes them.
"""

import enum
import itertools
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from trellis.config import VineConfig
from trellis.policies.distributions import Categoricals, Distribution
from trellis.policies.masked import legal_choices

MAX_ENUMERATED = 32
"""Largest number of actions (combinations of factors) for which `EVERY` is allowed."""


class Proposal(enum.Enum):
    """Ways to choose the first actions in a state."""

    POLICY = "policy"
    """Sample actions from π_old."""
    UNIFORM = "uniform"
    """Sample actions uniformly."""
    MIXTURE = "mixture"
    """Sample each action from π_old or uniformly, with equal chances."""
    EVERY = "every"
    """Choose each action once."""


class ProposalError(ValueError):
    """The proposal does not fit the action space; the message names one that does."""


def choose_proposal(settings: VineConfig, distribution: Distribution) -> tuple[Proposal, int]:
    """Return the proposal that the settings name, and K, its number of actions per state.

    "auto" means "policy" for continuous actions. For discrete actions it means "every" if there are
    at most `settings.actions` of them (and at most `MAX_ENUMERATED`), else "uniform". With "every",
    K is the number of actions.

    Args:
        settings: Settings of the vine sampler.
        distribution: Action distribution of the policy.

    Raises:
        ProposalError: The proposal does not fit the action space.
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
                "the vine proposal 'every' needs discrete actions, but these are continuous: use"
                " the proposal 'policy'"
            )
        if count > MAX_ENUMERATED:
            raise ProposalError(
                f"the vine proposal 'every' allows at most {MAX_ENUMERATED} actions, but there are"
                f" {count}: use the proposal 'uniform' or 'policy'"
            )
        return proposal, count
    if proposal is not Proposal.POLICY and count is None:
        raise ProposalError(
            f"the vine proposal {name!r} does not cover continuous actions, which are unbounded:"
            " use the proposal 'policy'"
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
    params: Any,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> tuple[Shaped[np.ndarray, "action state ..."], Float[np.ndarray, "action state"]]:
    """Choose K actions in each of N states and return them with their log q(a|s).

    Args:
        proposal: How to choose the actions.
        distribution: Action distribution of the policy.
        params: Parameters of the distribution in the N states.
        shape: Number of actions and number of states, (K, N).
        rng: Source of the noise.

    Returns:
        The actions (K, N, ...), and log q(a|s) of each, (K, N).
    """
    if proposal is Proposal.POLICY:
        action = distribution.sample(params, distribution.noise(rng, shape))
        return action, distribution.log_prob(params, action)
    assert isinstance(distribution, Categoricals)
    sizes = distribution.sizes
    legal = legal_choices(np.asarray(params))
    if legal.all():
        log_q = np.full(shape, -sum(math.log(size) for size in sizes), np.float32)
    else:
        counts = np.add.reduceat(legal, np.cumsum((0, *sizes[:-1])), axis=-1, dtype=np.float64)
        log_q = np.broadcast_to(-np.log(counts).sum(axis=-1), shape).astype(np.float32)

    def sample_uniform() -> np.ndarray:
        if legal.all():
            return rng.integers(sizes, size=(*shape, len(sizes)))
        return _uniform_legal(distribution, legal, shape, rng)

    if proposal is Proposal.UNIFORM:
        return sample_uniform(), log_q
    if proposal is Proposal.MIXTURE:
        policy = distribution.sample(params, distribution.noise(rng, shape))
        uniform = sample_uniform()
        action = np.where(rng.random(shape)[..., None] < 0.5, np.asarray(policy), uniform)
        log_pi = np.asarray(distribution.log_prob(params, action))
        return action, (np.logaddexp(log_pi, log_q) - math.log(2)).astype(np.float32)
    every = np.array(list(itertools.product(*map(range, sizes))), np.int64)
    return np.broadcast_to(every[:, None], (*shape, len(sizes))), log_q


def _uniform_legal(
    distribution: Categoricals,
    legal: Bool[np.ndarray, "state choice"],
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> np.ndarray:
    """Sample each factor uniformly among its legal choices: the argmax of noise at these."""
    noise = np.where(legal, rng.random((*shape, legal.shape[-1])), -1.0)
    return distribution.mode(noise)


def is_legal(
    distribution: Distribution, params: Any, action: Shaped[np.ndarray, "action state ..."]
) -> Bool[np.ndarray, "action state"] | None:
    """Return whether actions are legal in their states; None if all are.

    Args:
        distribution: Action distribution of the policy.
        params: Parameters of the distribution in the states.
        action: Actions, (K, N, ...).
    """
    if not isinstance(distribution, Categoricals) or legal_choices(np.asarray(params)).all():
        return None
    sizes = np.array(distribution.sizes)
    columns = action + np.cumsum(sizes) - sizes
    states = np.arange(action.shape[1])[None, :, None]
    return legal_choices(np.asarray(params))[states, columns].all(axis=-1)
