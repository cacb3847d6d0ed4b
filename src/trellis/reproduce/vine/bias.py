"""Bias and noise of vine's gradient for each proposal, by enumeration on finite MDPs (Sec. 5.2).

In a state with action values Q, policy π and K actions a_k from q, the gradient of the
self-normalized estimator (Eq. 16) with respect to the logits is

    g = Σ_k w̄_k (Q(a_k) − Σ_j w̄_j Q(a_j)) e_{a_k}        w̄_k = w_k/Σ_j w_j,  w_k = π(a_k)/q(a_k)

and the exact one is π(a)(Q(a) − V). Here all |A|^K choices of actions are enumerated, so that the
expectation of g and its variance are exact. The noise of Q̂ is left out.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.theory import garnet

Reals = NDArray[np.float64]
MIXTURE = 0.5
"""Share of the policy in the mixture."""


@dataclass(frozen=True)
class BiasSweep:
    """Sizes of the measurement."""

    actions: int = 18
    """Number of actions, as many as an Atari console has."""
    tried: int = 4
    """K: actions tried per state."""
    best: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Probabilities of the policy's best action; the others share the rest."""
    mdps: int = 5
    """Number of random MDPs."""
    states: int = 6
    """Number of states of an MDP."""
    seed: int = 0


def measure(sweep: BiasSweep) -> list[dict[str, float | str]]:
    """Return cosine, length and noise of the expected gradient, by policy and proposal."""
    rows: list[dict[str, float | str]] = []
    for best in sweep.best:
        problems = [problem(sweep, best, sweep.seed + number) for number in range(sweep.mdps)]
        for name in ("uniform", "mixture", "policy", "every"):
            found = [
                whole_gradient(name, policy, q, weight, sweep.tried)
                for policy, q, weight in problems
            ]
            means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
            rows.append({"best_action": best, "proposal": name, **means})
    return rows


def problem(sweep: BiasSweep, best: float, seed: int) -> tuple[Reals, Reals, Reals]:
    """Return a policy on a random MDP, its exact Q-values and its state weights.

    The policy gives probability `best` to the action that is best under a uniform policy.
    """
    mdp = garnet(
        sweep.states, sweep.actions, 3, np.random.default_rng(seed), gamma=0.9, action_rewards=True
    )
    uniform = mdp.evaluate(mdp.uniform_policy())
    policy = np.full((sweep.states, sweep.actions), (1 - best) / (sweep.actions - 1))
    policy[np.arange(sweep.states), uniform.q_values.argmax(axis=1)] = best
    evaluation = mdp.evaluate(policy)
    return policy, evaluation.q_values, evaluation.visitation / evaluation.visitation.sum()


def whole_gradient(
    name: str, policy: Reals, q: Reals, weight: Reals, tried: int
) -> dict[str, float]:
    """Compare the expected gradient over all states with the exact one."""
    means, spreads = zip(
        *(state_gradient(name, *state, tried) for state in zip(policy, q, strict=True)), strict=True
    )
    mean = (weight[:, None] * np.array(means)).ravel()
    values = (policy * q).sum(axis=1, keepdims=True)
    exact = (weight[:, None] * policy * (q - values)).ravel()
    count = policy.shape[1] if name == "every" else tried
    noise = float(weight**2 @ np.array(spreads))
    return {
        "cosine": float(mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact)),
        "length": float(np.linalg.norm(mean) / np.linalg.norm(exact)),
        # Per rollout: a proposal with more rollouts per state affords fewer states.
        "noise_per_rollout": noise / float(mean @ mean) * count,
        "rollouts": float(count),
    }


def state_gradient(name: str, policy: Reals, q: Reals, tried: int) -> tuple[Reals, float]:
    """Return the expectation of g in one state, and the trace of its covariance."""
    size = len(policy)
    if name == "every":
        return policy * (q - policy @ q), 0.0
    uniform = np.full(size, 1 / size)
    proposal = {
        "uniform": uniform,
        "policy": policy,
        "mixture": MIXTURE * policy + (1 - MIXTURE) * uniform,
    }[name]
    chosen = np.array(list(itertools.product(range(size), repeat=tried)))
    chance = proposal[chosen].prod(axis=1)
    weights = (policy / proposal)[chosen]
    weights /= weights.sum(axis=1, keepdims=True)
    parts = weights * (q[chosen] - (weights * q[chosen]).sum(axis=1, keepdims=True))
    expected = (chance[:, None] * parts).ravel()
    mean = np.bincount(chosen.ravel(), expected, minlength=size).astype(np.float64)
    # |g|² adds up the parts of an action that was chosen several times.
    same = chosen[:, :, None] == chosen[:, None, :]
    squares = np.einsum("nk,nj,nkj->n", parts, parts, same)
    return mean, float(chance @ squares - mean @ mean)
