"""What the samples are worth: advantages along single paths, Q-values of vine's rollouts (Sec. 5).

`estimate` is a pure function of samples, critic and settings. `state_batch` turns its values into
the `StateBatch` that the surrogate takes. A single path gives every state the one action that was
taken there (Sec. 5.1). A vine gives K actions to the states of its rollout set, which alone make up
L; the mean KL and the Fisher matrix are over all states of the trunks (Sec. 5.2).
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trellis.config import EstimationConfig
from trellis.estimation.critic import Critic, CriticState, average_critics
from trellis.estimation.returns import ValueFunction, gae, path_returns, successor_values
from trellis.estimation.surrogate import StateBatch
from trellis.moments import Moments
from trellis.sampling.samples import Branches, Samples


@dataclass(frozen=True)
class CriticFit:
    """The critic after its fit to an iteration's samples, and how well it predicted them before."""

    critic: CriticState
    """The fitted critic."""
    loss: Moments
    """Mean squared error during the fit, counted by samples."""
    advantage: Moments
    """Moments of the advantages: what the critic left unexplained."""
    target: Moments
    """Moments of the returns that the critic was fitted to."""

    def merge(self, other: "CriticFit") -> "CriticFit":
        """Return one fit for two shards: critics are averaged by their numbers of samples."""
        loss = self.loss.merge(other.loss)
        return CriticFit(
            average_critics(self.critic, other.critic, float(other.loss.count / loss.count)),
            loss,
            self.advantage.merge(other.advantage),
            self.target.merge(other.target),
        )

    @property
    def explained_variance(self) -> float | None:
        """1 − Var(advantage)/Var(return); None where all returns are the same."""
        total = self.target.variance
        return float(1 - self.advantage.variance / total) if total > 0 else None


class Estimated(NamedTuple):
    """Statistics of what an iteration's samples are worth."""

    values: Moments
    """Moments of the advantages; with vine, of the differences among the actions of a state."""
    critic_fit: CriticFit | None
    """The critic's fit, if there is a critic."""


def estimate(
    samples: Samples,
    critic: Critic | None,
    state: CriticState,
    settings: EstimationConfig,
    *,
    reward_scale: float = 1.0,
    rng: np.random.Generator,
) -> tuple[np.ndarray, Estimated]:
    """Estimate what the samples are worth by the critic as it is, then fit the critic to them.

    Args:
        samples: an iteration's samples.
        critic: what estimates V, if anything does.
        state: the critic's parameters.
        settings: discount, λ and the like.
        reward_scale: rewards are divided by it.
        rng: orders the minibatches of the fit.

    Returns:
        Advantages (time, env) of single paths, or Q-values (state, action) of a vine; and their
        statistics with the critic's fit.
    """
    reward = samples.reward / reward_scale
    advantage = critic_fit = value_of = None
    if critic is not None:
        value_of = functools.partial(critic.predict, state)
        value = value_of(samples.observation, samples.age)
        successor = successor_values(samples, value, value_of)
        advantage = gae(reward, samples, value, successor, settings.gamma, settings.gae_lambda)
        target = (advantage + value).ravel()
        observation = samples.observation.reshape(target.size, -1)
        fitted, loss = critic.fit(state, observation, samples.age.ravel(), target, rng)
        loss = Moments.of_mean(loss, target.size)
        critic_fit = CriticFit(fitted, loss, Moments.of(advantage), Moments.of(target))
    if samples.branches is not None:
        q = rollout_values(samples.branches, reward_scale, value_of)
        return q, Estimated(moments_by_state(q), critic_fit)
    if advantage is None:
        advantage = path_returns(reward, samples, settings.gamma)
    return advantage, Estimated(moments_of_advantages(advantage), critic_fit)


def rollout_values(
    branches: Branches, reward_scale: float, value_of: ValueFunction | None = None
) -> np.ndarray:
    """Return Q̂ = Σ γᵗ r_t of every rollout, (state, action), in units of `reward_scale`.

    With a value function, V of the last state stands for what follows a rollout that was cut.
    """
    q = branches.reward_sum / reward_scale
    if value_of is None:
        return q
    return q + branches.remaining * value_of(branches.final_observation, branches.final_age)


def moments_of_advantages(values: np.ndarray) -> Moments:
    """Return the moments of advantages, their variance in the advantages' own precision.

    The mean is taken in double precision, so that equal values leave nothing behind when it is
    subtracted. Centering before squaring keeps the digits of values that are far from 0.
    """
    mean = values.mean(dtype=np.float64)
    variance = float((values - values.dtype.type(mean)).var())
    return Moments.of_mean(float(mean), values.size, variance)


def moments_by_state(q: np.ndarray) -> Moments:
    """Return the moments of the differences among the actions of each state."""
    differences = q - q.mean(axis=1, keepdims=True)
    return Moments.of_mean(float(differences.mean()), q.size, float(differences.var()))


def state_batch(
    samples: Samples, values: np.ndarray, moments: Moments, settings: EstimationConfig
) -> StateBatch:
    """Return the states with their actions and values, as the surrogate takes them.

    Args:
        samples: an iteration's samples.
        values: what `estimate` found.
        moments: moments of the values of all shards, by which they are centered and scaled.
        settings: how values are rescaled, and whether states are discounted.
    """
    weight = state_weights(samples, settings.gamma if settings.discount_states else 1.0)
    if samples.branches is not None:
        q = rescale_by_state(values, settings.advantages, moments)
        return vine_batch(samples, samples.branches, q, weight)
    n, advantage = values.size, rescale(values, settings.advantages, moments)
    return StateBatch(
        observation=samples.observation.reshape(n, -1),
        action=samples.action.reshape(n, 1, -1),
        log_q=samples.log_q.reshape(n, 1),
        value=advantage.reshape(n, 1).astype(np.float32),
        surrogate_weight=weight.reshape(n),
        kl_weight=weight.reshape(n),
    )


def vine_batch(
    samples: Samples, branches: Branches, q: np.ndarray, weight: np.ndarray
) -> StateBatch:
    """Return all states of the trunks; those of the rollout set have K actions and Q-values."""
    n = weight.size
    indices = np.ravel_multi_index(tuple(branches.place.T), weight.shape)

    def scatter(values: np.ndarray) -> np.ndarray:
        """Return values of the rollout set among zeros for the other states."""
        everywhere = np.zeros((n, *values.shape[1:]), values.dtype)
        everywhere[indices] = values
        return everywhere

    return StateBatch(
        observation=samples.observation.reshape(n, -1),
        action=scatter(branches.action),
        log_q=scatter(branches.log_q),
        value=scatter(q.astype(np.float32)),
        surrogate_weight=scatter(weight.reshape(n)[indices]),
        kl_weight=weight.reshape(n),
    )


def rescale(values: np.ndarray, how: str, moments: Moments) -> np.ndarray:
    """Return advantages as they are ("raw"), centered ("center"), or with std 1 ("standardize").

    `moments` are those of the advantages of all shards.
    """
    number = values.dtype.type
    if how != "raw":
        values = values - number(moments.mean)
    if how == "standardize":
        values = values / (np.sqrt(number(moments.variance)) + 1e-8)
    return values


def rescale_by_state(q: np.ndarray, how: str, moments: Moments) -> np.ndarray:
    """Return Q-values divided by the std of their differences within a state ("standardize").

    Vine's estimators ignore what the actions of a state have in common, so the mean stays.
    """
    if how != "standardize":
        return q
    return q / (np.sqrt(q.dtype.type(moments.variance)) + 1e-8)


def state_weights(samples: Samples, discount: float) -> np.ndarray:
    """Return the weight of every state, (time, env): γᵗ for ρ_π of the paper, or 1."""
    ones = np.ones(samples.reward.shape, np.float32)
    return ones if discount == 1.0 else ones * (discount**samples.age).astype(np.float32)
