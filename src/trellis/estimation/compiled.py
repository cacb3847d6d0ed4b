"""Estimates advantages of compiled paths on the device, and fits the critic there (Sec. 5.1).

The mathematics is that of `advantages.py` and `returns.py`, whose functions it calls with JAX
arrays. Episodes end at a different time in every environment, so where those functions work with
lists of final observations, these have one value per step and a mask.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from trellis.arrays import Array
from trellis.config import EstimationConfig
from trellis.estimation.critic import MLPCritic, fit_network
from trellis.estimation.device_moments import DeviceMoments, of_chosen, of_values
from trellis.estimation.returns import differential_gae, gae, path_returns, running_returns
from trellis.policies.networks import unflatten
from trellis.sampling.scan import Paths

ROWS_AT_ONCE = 8192
"""Number of states whose values are computed together."""


class PathStatistics(NamedTuple):
    """Statistics of the paths of an iteration, as `Collected` has them."""

    returns: DeviceMoments
    """Moments of running discounted returns."""
    reward: DeviceMoments
    """Moments of the rewards."""
    episode_return: DeviceMoments
    """Moments of the returns of finished episodes."""
    episode_length: DeviceMoments
    """Moments of the lengths of finished episodes."""
    gain: DeviceMoments
    """Moments of the rewards for the average criterion."""


class Running(NamedTuple):
    """Sums along the episodes, which continue in the next iteration."""

    discounted_return: Float[Array, " env"]
    """Running discounted return of each environment."""
    episode_return: Float[Array, " env"]
    """Sum of rewards since the episode began."""


class Fit(NamedTuple):
    """Critic fit on one device."""

    critic: dict[str, Array]
    """State of the fitted critic; the old one if the fit diverged."""
    loss: Float[Array, ""]
    """Mean squared error during the fit."""
    diverged: Bool[Array, ""]
    """Whether the fit diverged."""
    target: DeviceMoments
    """Moments of the returns that the critic was fitted to."""


def path_statistics(
    paths: Paths,
    running: Running,
    settings: EstimationConfig,
    *,
    new_episodes: bool,
    longest: int | None,
) -> tuple[PathStatistics, Running]:
    """Return the statistics of paths, and the sums after their last step.

    Args:
        paths: Paths of one iteration.
        running: Sums before the first step; 0 where an episode starts.
        settings: Discount factor and cost of a reset.
        new_episodes: Whether every iteration starts new episodes.
        longest: Time limit of the environment, or None.
    """
    ended, reward = paths.ended, paths.reward
    discounted = running_returns(reward, ended, running.discounted_return, settings.gamma)
    undiscounted = running_returns(reward, ended, running.episode_return, 1.0)
    counted = ended
    if new_episodes and longest is not None and longest <= len(reward):
        # Only episodes that even the longest one would have ended; see `Samples.representative`.
        first_step = jnp.arange(len(reward))[:, None] - paths.age
        counted = ended & (first_step <= len(reward) - longest)
    after = jnp.where(ended[-1] | new_episodes, 0.0, discounted[-1])
    statistics = PathStatistics(
        of_values(discounted),
        of_values(reward),
        of_chosen(undiscounted, counted),
        of_chosen(paths.age + 1, counted),
        of_values(continuing_rewards(paths, settings)),
    )
    return statistics, Running(after, jnp.where(ended[-1], 0.0, undiscounted[-1]))


def continuing_rewards(paths: Paths, settings: EstimationConfig) -> Array:
    """Return rewards for the average criterion: a terminal state costs `reset_cost`."""
    return paths.reward - settings.reset_cost * paths.terminated


def values_of(critic: MLPCritic, state: dict[str, Array], observation: Array) -> Array:
    """Return V of normalized observations (..., features), some thousand at a time."""
    layers, _ = unflatten(critic.network, state["weights"])
    features = critic.features
    assert isinstance(features, int)

    def value(row: Array) -> Array:
        return critic.network.apply(layers, row[..., :features])[..., 0]

    if observation.ndim < 3:
        return value(observation)
    times = max(1, ROWS_AT_ONCE // observation.shape[1])
    return jax.lax.map(value, observation, batch_size=times)


def path_advantages(
    paths: Paths,
    value: Array | None,
    last_value: Array | None,
    settings: EstimationConfig,
    reward_scale: Array,
    gain: Array,
) -> Array:
    """Return advantages of single paths, (time, env), before a baseline is subtracted.

    Args:
        paths: Paths whose `final` is V of the final observation where an episode was truncated.
        value: V(s_t) for every step; None without a critic.
        last_value: V of the observations after the last step; None without a critic.
        settings: Criterion, discount factor and λ.
        reward_scale: Number that rewards are divided by.
        gain: Average reward of all shards, for criterion average.
    """
    average, lam = settings.criterion == "average", settings.gae_lambda
    reward = (continuing_rewards(paths, settings) if average else paths.reward) / reward_scale
    if value is None or last_value is None:
        return path_returns(reward, paths, settings.gamma)
    successor = jnp.concatenate([value[1:], last_value[None]])
    successor = jnp.where(paths.truncated & ~paths.terminated, paths.final, successor)
    if average:
        return differential_gae(reward, paths, value, successor, gain / reward_scale, lam)
    successor = jnp.where(paths.terminated, 0.0, successor)
    return gae(reward, paths, value, successor, settings.gamma, lam)


def fit_critic(
    critic: MLPCritic,
    state: dict[str, Array],
    observation: Array,
    target: Array,
    batches: Array,
    rate: Any,
) -> Fit:
    """Fit the critic to returns; a fit that diverges leaves the critic as it was.

    Args:
        critic: Description of the critic.
        state: Parameters of the critic and of Adam.
        observation: Normalized observations, (time, env, features).
        target: Returns, (time, env).
        batches: Samples of each gradient step.
        rate: Learning rate of this fit; None for that of the settings.
    """
    settings, features = critic.settings, critic.features
    assert isinstance(features, int)
    if settings.criterion == "average":
        target = target - of_values(target).mean
    rows = observation.reshape(target.size, -1)[:, :features]
    constant = settings.critic_learning_rate
    network, flat = critic.network, target.reshape(-1)
    new, loss = fit_network(network, constant, state, rows, flat, batches, None, rate)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in new.values()]))
    kept = {name: jnp.where(finite, new[name], state[name]) for name in new}
    return Fit(kept, loss, ~finite, of_values(target))
