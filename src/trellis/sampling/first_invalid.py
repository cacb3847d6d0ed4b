"""Finds the first invalid value of a compiled scan, and reports it as a step by step sampler does.

A compiled program cannot raise an exception. It returns what is invalid, together with the step and
the key of each episode at that time, from which the batch makes its error.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from trellis.arrays import Array
from trellis.sampling.environment import Compilable
from trellis.sampling.scan import Paths, Walker


class AtTime(NamedTuple):
    """Values of all environments at the first time step that has an invalid one."""

    found: Bool[Array, ""]
    """Whether a value is invalid; if not, the others mean nothing."""
    values: Float[Array, "env ..."]
    """Values at that time."""
    elapsed: Int[Array, " env"]
    """Number of steps of each episode."""
    key: UInt32[Array, "env 2"]
    """Key of each episode."""


class FirstInvalid(NamedTuple):
    """The first invalid values of the environments, if there are any."""

    observation: AtTime
    """The first observation that is not finite, or whose action mask allows no action."""
    reward: AtTime
    """The first reward that is not finite."""


def first_invalid(walker: Walker, paths: Paths) -> FirstInvalid:
    """Return the first invalid values of some paths; JAX can compile it."""

    def first(valid: Array, values: Array, elapsed: Array) -> AtTime:
        bad = ~valid.all(axis=1)
        t = bad.argmax()
        return AtTime(bad.any(), values[t], elapsed[t], paths.key[t])

    seen, reward, age = paths.raw_observation, paths.reward, paths.age
    return FirstInvalid(
        first(walker.is_usable(seen), seen, age), first(jnp.isfinite(reward), reward, age + 1)
    )


@functools.partial(jax.jit, static_argnums=0)
def compiled_first_invalid(walker: Walker, paths: Paths) -> FirstInvalid:
    """Return the first invalid values of some paths."""
    return first_invalid(walker, paths)


def raise_invalid(env: Compilable, walker: Walker, found: FirstInvalid) -> None:
    """Raise the batch's error for the first invalid value, if there is one.

    Raises:
        BadValueError: An observation or a reward is not finite, or a mask allows no action.
    """

    def restore(at: AtTime) -> Any:
        """Restore steps and keys, which the batch names in its message; return the values."""
        env.rows = env.rows._replace(elapsed=at.elapsed, key=at.key)
        return np.asarray(at.values)

    if found.observation.found:
        values = restore(found.observation)
        env.check_finite("observation", values)
        env.check_masks(walker.mask_of(values))
    if found.reward.found:
        env.check_finite("reward", restore(found.reward))
