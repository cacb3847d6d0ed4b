"""Returns and advantages along paths (Sec. 5.1; GAE for what came after the paper).

All is one recurrence, y_t = x_t + d_t·y_{t+1}, over arrays in (time, environment) order. An
episode that `terminated` is worth nothing afterwards. One that was `truncated`, or that the end of
the batch cuts, would have gone on: with a critic its rest is V of the observation at which it
stopped; without one it counts as zero, which is what the paper's discounted sums along finite paths
amount to.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trellis.sampling.samples import Samples

Array = Any  # a NumPy or a JAX array


@jax.jit
def discounted_sums(x: Array, decay: Array) -> Array:
    """y_t = x_t + decay_t·y_{t+1} with y_T = 0, along the first axis."""

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        value, factor = now
        total = value + factor * later
        return total, total

    _, sums = jax.lax.scan(back, jnp.zeros_like(x[0]), (x, decay), reverse=True)
    return sums


def successor_values(
    samples: Samples, value: Array, final_value: Array, last_value: Array
) -> np.ndarray:
    """V(s_{t+1}) for every step, (T, N): of the final observation where an episode ended, 0 where
    it terminated, of the last observation at the end of the batch."""
    successor = np.concatenate([np.asarray(value)[1:], np.asarray(last_value)[None]])
    successor[tuple(samples.final_at.T)] = final_value
    return np.where(samples.terminated, 0.0, successor).astype(np.float32)


def path_returns(reward: Array, samples: Samples, successor: Array, gamma: float) -> np.ndarray:
    """Q̂_t = Σ γᵏ r_{t+k} along the path, and what the successor is worth where it stops, (T, N).

    `successor` (see `successor_values`) may be 0, for no critic at all.
    """
    stops = samples.ended.copy()
    stops[-1] = True
    tail = np.where(stops, gamma * np.asarray(successor), 0.0)
    decay = np.where(stops, 0.0, gamma)
    return np.asarray(discounted_sums(_single(reward + tail), _single(decay)))


def gae(
    reward: Array, samples: Samples, value: Array, successor: Array, gamma: float, lam: float
) -> np.ndarray:
    """Â_t = Σ (γλ)ᵏ δ_{t+k} with δ = r + γV(s') − V(s), (T, N) (Schulman et al., 2016)."""
    delta = reward + gamma * np.asarray(successor) - value
    decay = np.where(samples.ended, 0.0, gamma * lam)
    return np.asarray(discounted_sums(_single(delta), _single(decay)))


def running_returns(reward: Array, ended: Array, before: Array, gamma: float) -> np.ndarray:
    """R_t = r_t + γR_{t−1}, starting over after each end, (T, N); `before` is R of the step before
    the first, 0 where an episode ended there."""
    new = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
    decay = np.where(new, 0.0, gamma)
    first = np.array(reward, np.float32)
    first[0] += gamma * before
    decay[0] = 0.0
    return np.asarray(discounted_sums(first[::-1], _single(decay[::-1])))[::-1]


def _single(x: Array) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.float32)
