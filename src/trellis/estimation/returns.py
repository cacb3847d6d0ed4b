"""Computes returns and advantages along paths (Sec. 5.1; GAE is from Schulman et al., 2016).

All of them follow one recurrence over arrays in (time, environment) order:

    y_t = x_t + d_t·y_{t+1}

After an episode `terminated`, the value of the rest is 0. An episode that was `truncated`, or cut
by the end of the batch, would have continued. With a critic, the value of the rest is V of the last
observation. Without a critic it counts as 0, as in the paper's discounted sums along finite paths.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from trellis.arrays import Array
from trellis.sampling.samples import Samples

ValueFunction = Callable[[Array, Array], np.ndarray]
"""A function from observations and their times in the episode to V."""
Grid = Float[Array, "time env"]
"""One number for every step of every environment."""


class Ended(Protocol):
    """Samples or paths that say where episodes ended, as NumPy or as JAX arrays."""

    @property
    def ended(self) -> Any:
        """Whether each step ended its episode."""
        ...

    @property
    def terminated(self) -> Any:
        """Whether each step reached a terminal state."""
        ...

    @property
    def truncated(self) -> Any:
        """Whether each step ended its episode early."""
        ...


@jax.jit
def discounted_sums(x: Grid, decay: Grid) -> Grid:
    """Return y_t = x_t + decay_t·y_{t+1} with y_T = 0, along the first axis."""

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        value, factor = now
        total = value + factor * later
        return total, total

    _, sums = jax.lax.scan(back, jnp.zeros_like(x[0]), (x, decay), reverse=True)
    return sums


def successor_values(samples: Samples, value: Grid, value_of: ValueFunction) -> Grid:
    """Return V(s_{t+1}) for every step.

    It is V of the final observation if the episode was truncated, 0 if it terminated, and V of the
    last observation at the end of the batch.

    Args:
        samples: Samples of one iteration.
        value: V(s_t) for every step.
        value_of: Value function of the critic.
    """
    final_at = tuple(samples.final_at.T)
    final_value = value_of(samples.final_observation, samples.age[final_at] + 1)
    last_age = np.where(samples.ended[-1], 0, samples.age[-1] + 1)
    last_value = value_of(samples.last_observation, last_age)
    successor = np.concatenate([np.asarray(value)[1:], last_value[None]])
    successor[final_at] = final_value
    return np.where(samples.terminated, 0.0, successor).astype(np.float32)


def continued_values(samples: Samples, value: Grid, value_of: ValueFunction) -> Grid:
    """Return V(s_{t+1}) for every step of a process that never ends (average reward).

    After a terminal state, s_{t+1} is the first state of the next episode. An episode that was
    truncated before a terminal state would have continued, so it is V of the final observation
    there.

    Args:
        samples: Samples of one iteration.
        value: V(s_t) for every step.
        value_of: Value function of the critic.
    """
    last_age = np.where(samples.ended[-1], 0, samples.age[-1] + 1)
    last_value = value_of(samples.last_observation, last_age)
    successor = np.concatenate([np.asarray(value)[1:], last_value[None]])
    final_at = tuple(samples.final_at.T)
    final_value = value_of(samples.final_observation, samples.age[final_at] + 1)
    cut = (samples.truncated & ~samples.terminated)[final_at]
    successor[final_at] = np.where(cut, final_value, successor[final_at])
    return successor.astype(np.float32)


def differential_gae(
    reward: Grid, samples: Ended, value: Grid, successor: Grid, gain: Any, lam: float
) -> Grid:
    """Return advantages for the average reward, Â_t = Σ λᵏ δ_{t+k}.

    δ_t is r_t − ρ̂ + V(s_{t+1}) − V(s_t), with differential values V (Zhang and Ross, 2021). The sum
    continues after a terminal state, and stops where an episode was truncated before one.

    Args:
        reward: Rewards r_t.
        samples: Samples or paths of one iteration, which say where episodes ended.
        value: V(s_t) for every step.
        successor: V(s_{t+1}) for every step, from `continued_values`.
        gain: ρ̂, the estimated average reward.
        lam: λ, in [0, 1].
    """
    xp = reward.__array_namespace__()
    delta = reward - gain + xp.asarray(successor) - value
    decay = xp.where(samples.truncated & ~samples.terminated, 0.0, lam)
    return xp.asarray(discounted_sums(_single(delta), _single(decay)))


def path_returns(reward: Grid, samples: Ended, gamma: float, horizon: int | None = None) -> Grid:
    """Return Q̂_t = Σ γᵏ r_{t+k}, summed to the end of the episode or of the batch.

    Args:
        reward: Rewards r_t.
        samples: Samples of one iteration, which say where episodes ended.
        gamma: Discount factor γ.
        horizon: Largest number of rewards in a sum. Default: no limit.
    """
    xp = reward.__array_namespace__()
    decay = xp.where(samples.ended, 0.0, gamma)
    returns = xp.asarray(discounted_sums(_single(reward), _single(decay)))
    if horizon is None or horizon >= len(returns):
        return returns
    ends = np.concatenate([np.zeros((1, returns.shape[1]), int), samples.ended.cumsum(axis=0)])
    continues = ends[horizon:-1] == ends[: -horizon - 1]  # The episode outlasts the horizon.
    cut = returns.copy()
    cut[:-horizon] -= np.float32(gamma**horizon) * np.where(continues, returns[horizon:], 0.0)
    return cut


def gae(
    reward: Grid, samples: Ended, value: Grid, successor: Grid, gamma: float, lam: float
) -> Grid:
    """Return the generalized advantage estimates Â_t = Σ (γλ)ᵏ δ_{t+k}.

    δ_t is r_t + γV(s_{t+1}) − V(s_t).

    Args:
        reward: Rewards r_t.
        samples: Samples of one iteration, which say where episodes ended.
        value: V(s_t) for every step.
        successor: V(s_{t+1}) for every step, from `successor_values`.
        gamma: Discount factor γ.
        lam: λ, in [0, 1].
    """
    xp = reward.__array_namespace__()
    delta = reward + gamma * xp.asarray(successor) - value
    decay = xp.where(samples.ended, 0.0, gamma * lam)
    return xp.asarray(discounted_sums(_single(delta), _single(decay)))


def running_returns(
    reward: Grid, ended: Bool[Array, "time env"], before: Float[Array, " env"], gamma: float
) -> Grid:
    """Return R_t = r_t + γR_{t−1}, which restarts at 0 after each episode.

    Args:
        reward: Rewards r_t.
        ended: Whether each step ended its episode.
        before: R before the first step; 0 if an episode starts there.
        gamma: Discount factor γ.
    """
    xp = reward.__array_namespace__()
    new = xp.concatenate([xp.ones_like(ended[:1]), ended[:-1]])
    decay, now = xp.where(new, 0.0, gamma), xp.asarray(reward, dtype=np.float32)
    first = xp.concatenate([(now[:1] + gamma * before).astype(np.float32), now[1:]])
    return xp.asarray(discounted_sums(first[::-1], _single(decay[::-1])))[::-1]


def _single(x: Grid) -> Grid:
    if isinstance(x, jax.Array):
        return x.astype(np.float32)
    return np.ascontiguousarray(x, dtype=np.float32)
