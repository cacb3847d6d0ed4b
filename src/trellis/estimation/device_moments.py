"""Computes count, mean and variance inside a compiled program, like `moments.py` in NumPy.

Devices have single precision. So values are summed per time step first, then over time, relative to
the first value: no sum has many terms, and equal values have a variance of exactly 0.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Shaped

from trellis.arrays import Array
from trellis.moments import Moments


class DeviceMoments(NamedTuple):
    """Moments (count, mean and variance) of values that all have the same shape."""

    count: Float[Array, ""]
    """Number of values."""
    mean: Array
    """Mean of the values."""
    squares: Array
    """Sum of squared deviations from the mean."""

    @property
    def variance(self) -> Array:
        """Variance of the values; 1 while there are fewer than two values."""
        return jnp.where(self.count < 2, 1.0, self.squares / jnp.maximum(self.count, 1.0))

    def merge(self, other: "DeviceMoments") -> "DeviceMoments":
        """Return the moments of both sets of values together."""
        total = self.count + other.count
        share = other.count / jnp.maximum(total, 1.0)
        shift = other.mean - self.mean
        squares = self.squares + other.squares + shift**2 * self.count * share
        return DeviceMoments(total, self.mean + shift * share, squares)

    def over(self, axes: tuple[str, ...]) -> "DeviceMoments":
        """Return the moments of the values of all devices."""
        if not axes:
            return self
        count = jax.lax.psum(self.count, axes)
        mean = jax.lax.psum(self.mean * self.count, axes) / jnp.maximum(count, 1.0)
        squares = self.squares + self.count * (self.mean - mean) ** 2
        return DeviceMoments(count, mean, jax.lax.psum(squares, axes))


def of_values(values: Shaped[Array, "time env ..."]) -> DeviceMoments:
    """Return the moments of values in (time, environment) order."""
    values = values.astype(jnp.float32)
    first = values[0, 0]
    mean = first + jnp.mean(jnp.mean(values - first, axis=1), axis=0)
    squares = jnp.sum(jnp.sum(jnp.square(values - mean), axis=1), axis=0)
    count = math.prod(values.shape[:2])
    return DeviceMoments(jnp.float32(count), mean, squares)


def of_chosen(values: Shaped[Array, "time env"], chosen: Bool[Array, "time env"]) -> DeviceMoments:
    """Return the moments of the values that are chosen; the mean of none is 0."""
    values = jnp.where(chosen, values, 0.0).astype(jnp.float32)
    count = jnp.sum(chosen).astype(jnp.float32)
    mean = jnp.sum(jnp.sum(values, axis=1)) / jnp.maximum(count, 1.0)
    squares = jnp.sum(jnp.sum(jnp.where(chosen, jnp.square(values - mean), 0.0), axis=1))
    return DeviceMoments(count, mean, squares)


def to_device(moments: Moments) -> DeviceMoments:
    """Return moments in single precision, as inputs of a compiled program."""
    parts = moments.count, moments.mean, moments.squares
    return DeviceMoments(*(np.asarray(part, np.float32) for part in parts))


def to_host(moments: DeviceMoments) -> Moments:
    """Return moments that a program computed, in double precision."""
    return Moments(*(np.asarray(part, np.float64) for part in moments))
