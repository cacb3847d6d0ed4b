"""Estimates advantages along single paths and Q-values of vine's rollouts (Sec. 5).

`estimate` is a pure function of samples, critic and settings. `state_batch` turns its values into
the `StateBatch` that the surrogate needs. With single path, every state has the one action that was
executed there (Sec. 5.1). With vine, only the states of the rollout set, with K actions each, enter
L; the mean KL and the Fisher matrix use all states of the trunks (Sec. 5.2).
"""

import functools
from typing import Any

import jax
import numpy as np

from trellis.config import EstimationConfig
from trellis.estimation.baseline import TimeMoments, ValueMoments
from trellis.estimation.critic import Critic, CriticState
from trellis.estimation.estimates import CriticFit, Estimate, Estimated, fit_critic
from trellis.estimation.returns import (
    ValueFunction,
    continued_values,
    differential_gae,
    gae,
    path_returns,
    successor_values,
)
from trellis.estimation.state_batch import StateBatch
from trellis.moments import Moments
from trellis.policies.sequences import Sequences
from trellis.sampling.samples import Branches, Carries, Samples

__all__ = ["CriticFit", "Estimate", "Estimated", "estimate", "estimate_values", "state_batch"]


def estimate(
    samples: Samples,
    critic: Critic | None,
    state: CriticState,
    settings: EstimationConfig,
    *,
    reward_scale: float = 1.0,
    cut_value: float = 0.0,
    gain: float = 0.0,
    learning_rate: float | None = None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, Estimated]:
    """Estimate advantages or Q-values with the current critic, then fit the critic.

    It takes the arguments of `estimate_values`.

    Returns:
        The values, and their statistics with the critic fit.
    """
    values, moments, fit = estimate_values(
        samples,
        critic,
        state,
        settings,
        reward_scale=reward_scale,
        cut_value=cut_value,
        gain=gain,
        learning_rate=learning_rate,
        rng=rng,
    )
    return values, Estimated(moments, None if fit is None else fit())


def estimate_values(
    samples: Samples,
    critic: Critic | None,
    state: CriticState,
    settings: EstimationConfig,
    *,
    reward_scale: float = 1.0,
    cut_value: float = 0.0,
    gain: float = 0.0,
    learning_rate: float | None = None,
    rng: np.random.Generator,
) -> Estimate:
    """Estimate advantages or Q-values with the current critic.

    Args:
        samples: Samples of one iteration.
        critic: Description of the critic, or None.
        state: Parameters of the critic.
        settings: Discount factor, λ and other settings.
        reward_scale: Number that rewards are divided by.
        cut_value: Value of the state in which a rollout of vine is cut, without a critic.
        gain: Mean of `continuing_rewards` over all shards, which criterion average needs.
        learning_rate: Learning rate of the critic; None for that of the settings.
        rng: Source of the order of minibatches in the fit.
    """
    if settings.critic_memory:
        samples = with_carries(samples)
    average = settings.criterion == "average"
    reward = (continuing_rewards(samples, settings) if average else samples.reward) / reward_scale
    advantage = fit = value_of = None
    if critic is not None:
        value_of = functools.partial(critic.predict, state)
        value = value_of(samples.observation, samples.age)
        if average:
            successor = continued_values(samples, value, value_of)
            gain, lam = gain / reward_scale, settings.gae_lambda
            advantage = differential_gae(reward, samples, value, successor, gain, lam)
        else:
            successor = successor_values(samples, value, value_of)
            advantage = gae(reward, samples, value, successor, settings.gamma, settings.gae_lambda)
        target = (advantage + value).ravel()
        if average:  # Only differences of values count. A mean of 0 keeps them from drifting.
            target = target - target.mean(dtype=np.float64).astype(target.dtype)
        observation = samples.observation.reshape(target.size, -1)
        data = state, observation, samples.age.ravel(), target, rng, learning_rate
        fit = functools.partial(fit_critic, critic, data, advantage)
    if samples.branches is not None:
        q = rollout_values(samples.branches, reward_scale, value_of, cut_value)
        return Estimate(q, moments_by_state(q, samples.branches.legal), fit)
    if advantage is None:
        advantage = path_returns(reward, samples, settings.gamma, settings.horizon)
        if settings.baseline == "time":
            return Estimate(advantage, TimeMoments.of(advantage), fit)
    return Estimate(advantage, moments_of_advantages(advantage), fit)


def continuing_rewards(samples: Samples, settings: EstimationConfig) -> np.ndarray:
    """Return rewards for the average criterion: a terminal state costs `reset_cost`."""
    return samples.reward - settings.reset_cost * samples.terminated


def with_carries(samples: Samples) -> Samples:
    """Return samples whose observations are those of a critic that sees the policy's carry.

    The carry before an action does not depend on it, so the values stay a valid baseline. It comes
    first, because critics ignore an action mask at the end. Samples without carries, or with
    pictures, are returned unchanged.
    """
    carries, branches = samples.carries, samples.branches
    if carries is None or not isinstance(samples.observation, np.ndarray):
        return samples
    if branches is not None and branches.final_carry is not None:
        final = np.concatenate([branches.final_carry, branches.final_observation], axis=-1)
        branches = branches._replace(final_observation=final)
    return samples._replace(
        observation=np.concatenate([carries.before, samples.observation], axis=-1),
        final_observation=np.concatenate([carries.final, samples.final_observation], axis=-1),
        last_observation=np.concatenate([carries.last, samples.last_observation], axis=-1),
        branches=branches,
    )


def rollout_values(
    branches: Branches,
    reward_scale: float,
    value_of: ValueFunction | None = None,
    cut_value: float = 0.0,
) -> np.ndarray:
    """Return Q̂ = Σ γᵗ r_t of every rollout, (state, action), divided by `reward_scale`.

    With a value function, γᵗ·V of the last state is added if the rollout did not terminate.

    Args:
        branches: The rollouts.
        reward_scale: Number that rewards are divided by.
        value_of: Value function of the critic; None adds nothing, as in the paper.
        cut_value: Value to add instead of a value function's.
    """
    q = branches.reward_sum / reward_scale
    if value_of is None:
        return q + branches.remaining * (cut_value / reward_scale) if cut_value else q
    return q + branches.remaining * value_of(branches.final_observation, branches.final_age)


def moments_of_advantages(values: np.ndarray) -> Moments:
    """Return the moments of advantages, with the variance in the advantages' own precision.

    The mean is computed in double precision, so that equal values become exactly 0 when it is
    subtracted. Centering before squaring keeps the digits of values that are far from 0.
    """
    mean = values.mean(dtype=np.float64)
    variance = float((values - values.dtype.type(mean)).var())
    return Moments.of_mean(float(mean), values.size, variance)


def moments_by_state(q: np.ndarray, legal: np.ndarray | None = None) -> Moments:
    """Return the moments of the differences among the actions of each state.

    Args:
        q: Q-values, (state, action).
        legal: Whether each action is legal; by default all are. The others do not count.
    """
    if legal is not None:
        mean = np.mean(q, axis=1, keepdims=True, where=legal)
        differences = (q - mean)[legal]
        return Moments.of_mean(
            float(differences.mean()), differences.size, float(differences.var())
        )
    differences = q - q.mean(axis=1, keepdims=True)
    return Moments.of_mean(float(differences.mean()), q.size, float(differences.var()))


def state_batch(
    samples: Samples, values: np.ndarray, moments: ValueMoments, settings: EstimationConfig
) -> StateBatch:
    """Return the states with their actions and values, in the form that the surrogate needs.

    Args:
        samples: Samples of one iteration.
        values: Values that `estimate` returned.
        moments: Moments of the values of all shards, used to subtract a baseline and to scale.
        settings: Settings for rescaling values and for discounting states.

    Returns:
        The states in (time, environment) order; for a policy with memory, in sequences.
    """
    batch = _flat_batch(samples, values, moments, settings)
    return batch if samples.carries is None else in_sequences(batch, samples, samples.carries)


def in_sequences(batch: StateBatch, samples: Samples, carries: Carries) -> StateBatch:
    """Return a batch in (time, environment) order as sequences, one per environment."""
    order = np.arange(samples.reward.size).reshape(samples.reward.shape).T.ravel()
    batch = jax.tree.map(lambda leaf: leaf[order], batch)
    starts = (samples.age == 0).ravel()[order]
    return batch._replace(observation=Sequences(batch.observation, starts, carries.before[0]))


def _flat_batch(
    samples: Samples, values: np.ndarray, moments: ValueMoments, settings: EstimationConfig
) -> StateBatch:
    """Return the batch of all states in (time, environment) order."""
    weight = state_weights(samples, settings.gamma if settings.discount_states else 1.0)
    if isinstance(moments, TimeMoments):
        values, moments = moments.advantages(values), moments.of_advantages
    if samples.branches is not None:
        legal = samples.branches.legal
        if legal is not None:
            # π gives illegal actions no weight. The mean keeps their values from any influence.
            values = np.where(legal, values, values.mean(axis=1, keepdims=True, where=legal))
        q = rescale_by_state(values, settings.advantages, moments)
        return vine_batch(samples, samples.branches, q, weight)
    centered = subtracts_mean(settings)
    n, advantage = values.size, rescale(values, settings.advantages, moments, centered=centered)
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
    """Return the batch of all trunk states; those of the rollout set have K actions and values."""
    n = weight.size
    indices = np.ravel_multi_index(tuple(branches.place.T), weight.shape)

    def scatter(values: np.ndarray) -> np.ndarray:
        """Return an array over all states: `values` in the rollout set, zeros elsewhere."""
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


def subtracts_mean(settings: EstimationConfig) -> bool:
    """Return whether advantages of single paths may be centered."""
    return settings.critic != "none" or settings.baseline != "none"


def rescale(values: Any, how: str, moments: Any, *, centered: bool = True) -> Any:
    """Return advantages unchanged ("raw"), centered ("center") or standardized ("standardize").

    Args:
        values: The advantages, as a NumPy or a JAX array.
        how: "raw", "center" or "standardize".
        moments: Moments of the advantages of all shards: `Moments` or `DeviceMoments`.
        centered: Whether "center" and "standardize" subtract the mean.
    """
    xp, dtype = values.__array_namespace__(), values.dtype
    if how != "raw" and centered:
        values = values - xp.asarray(moments.mean, dtype=dtype)
    if how == "standardize":
        values = values / (xp.sqrt(xp.asarray(moments.variance, dtype=dtype)) + 1e-8)
    return values


def rescale_by_state(q: np.ndarray, how: str, moments: Moments) -> np.ndarray:
    """Return Q-values, divided by the std of their differences within a state if "standardize".

    Vine's estimators ignore a constant added to all actions of a state, so the mean is kept.

    Args:
        q: Q-values, (state, action).
        how: "raw", "center" or "standardize".
        moments: Moments of the differences within states, over all shards.
    """
    if how != "standardize":
        return q
    return q / (np.sqrt(q.dtype.type(moments.variance)) + 1e-8)


def surrogate_scale(moments: ValueMoments, how: str, reward_scale: float) -> float:
    """Return how much reward one unit of the surrogate stands for.

    Args:
        moments: Moments of the values of all shards, as `estimate` returned them.
        how: "raw", "center" or "standardize".
        reward_scale: Number that rewards were divided by.
    """
    if how != "standardize":
        return reward_scale
    if isinstance(moments, TimeMoments):
        moments = moments.of_advantages
    return reward_scale * float(np.sqrt(moments.variance) + 1e-8)


def state_weights(samples: Samples, discount: float) -> np.ndarray:
    """Return the weight of every state, (time, env): `discount`ᵗ, with t the time in the episode.

    With `discount` = γ the weights give the paper's ρ_π; with 1 all states count equally.
    """
    ones = np.ones(samples.reward.shape, np.float32)
    return ones if discount == 1.0 else ones * (discount**samples.age).astype(np.float32)
