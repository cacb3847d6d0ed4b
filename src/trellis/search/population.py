"""A population of policies played as one environment batch: a row per member and episode.

Every member has weights of its own, so a layer is a batch of matrix products, (members, episodes,
in) @ (members, in, out), each computed by itself: a member's actions do not depend, to the bit, on
who plays beside it. That is why, unlike elsewhere, members that have ended may be left out.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trellis.blas import one_blas_thread
from trellis.envs.batch import BatchEnv, Observation
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy

Normalize = Callable[[np.ndarray], np.ndarray]


class Played(NamedTuple):
    """What became of every member in every episode, (members, episodes)."""

    returns: np.ndarray
    """Undiscounted."""
    lengths: np.ndarray
    observations: list[np.ndarray]
    """Encoded, not normalized, in which an action was taken; empty unless asked for."""

    @property
    def steps(self) -> int:
        """Of the simulator: those of rows that had not ended."""
        return int(self.lengths.sum())


def require_layers(policy: Policy) -> None:
    """Refuses a network that is not known to be a stack of matrix products."""
    if not isinstance(policy.network, MLP):
        raise ValueError(
            "cem and cma play a whole population at once, which works for MLP networks alone, not"
            f" for {type(policy.network).__name__}: use trpo, or an MLP"
        )


def member_weights(policy: Policy, thetas: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of θ as the network's weights and the free parameters, each with an axis of members.

    What is added to every episode alike (biases, log stds) gets an axis for the episodes.
    """
    members, weights, start = len(thetas), [], 0
    for shape in policy.network.shapes:
        stop = start + math.prod(shape)
        inner = shape if len(shape) > 1 else (1, *shape)
        weights.append(thetas[:, start:stop].reshape(members, *inner))
        start = stop
    return weights, thetas[:, None, start:]


def parameter_scales(policy: Policy) -> np.ndarray:
    """How far each parameter has to move to matter alike, (parameters,): 1/√(inputs of its unit).

    One length of step for all would drive wide layers into saturation before it moves narrow ones.
    """
    scales, inputs = [], 1
    for shape in policy.network.shapes:
        inputs = shape[0] if len(shape) > 1 else inputs  # A bias goes with the matrix before it.
        scales.append(np.full(math.prod(shape), 1.0 / math.sqrt(inputs)))
    return np.concatenate([*scales, np.ones(policy.distribution.num_free)])


def play(
    env: BatchEnv,
    policy: Policy,
    encode: Callable[[Observation], np.ndarray],
    normalize: Normalize,
    thetas: np.ndarray,
    seeds: np.ndarray,
    *,
    most_steps: int,
    noise: np.random.Generator | None = None,
    keep_observations: bool = False,
) -> Played:
    """One episode from each seed for each row of `thetas`, of `most_steps` steps at the most.

    `env` has a row for each pair. All members meet the same seeds, so that none of them wins by an
    easier start. Actions are the most probable ones, or drawn with `noise`.
    """
    members, episodes = len(thetas), len(seeds)
    rows, distribution = members * episodes, policy.distribution
    raw = encode(env.reset(np.arange(rows), np.tile(seeds, members)))
    returns, lengths = np.zeros(rows), np.zeros(rows, np.int64)
    active, playing = np.ones(rows, bool), np.arange(members)
    weights, free = member_weights(policy, thetas)
    seen: list[np.ndarray] = []
    with one_blas_thread():
        for _ in range(most_steps):
            still = np.flatnonzero(active.reshape(members, episodes).any(axis=1))
            if 2 * len(still) <= len(playing):  # Not at each end: weights have to be gathered.
                playing = still
                weights, free = member_weights(policy, thetas[playing])
            if keep_observations:
                seen.append(raw[active])
            observation = normalize(raw).reshape(members, episodes, -1)[playing]
            params = distribution.params(policy.network.apply(weights, observation), free)
            if noise is None:
                chosen = distribution.mode(params)
            else:
                drawn = distribution.noise(noise, (members, episodes))
                chosen = distribution.sample(params, drawn[playing])
            actions = np.zeros((members, episodes, *chosen.shape[2:]), chosen.dtype)
            actions[playing] = chosen
            step = env.step(actions.reshape(rows, *chosen.shape[2:]), active)
            returns += np.where(active, step.reward, 0.0)
            lengths += active
            active = active & ~(step.terminated | step.truncated)
            if not active.any():
                break
            raw = encode(step.observation)
    shape = (members, episodes)
    return Played(returns.reshape(shape), lengths.reshape(shape), seen)
