"""Defines `Sequences`, the observations of a policy with memory: states in order, with their carry.

A policy without memory takes states one by one. A policy with memory needs those before a state, so
states come in sequences of equal length, one per environment. The carry (hidden state) at the start
of a sequence is known from sampling. Where an episode starts inside a sequence, the carry is 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Bool, Float

from trellis.arrays import Array


class Sequences(NamedTuple):
    """Observations of n states: whole sequences, one after the other, each in order of time."""

    observation: Any
    """Observations: an array or a pytree of arrays whose first axis is the state."""
    starts: Bool[Array, " state"]
    """Whether an episode starts at the state, so that nothing before it is remembered."""
    carry: Float[Array, "sequence values"]
    """Carry before the first state of each sequence."""


def sequence_length(observation: Any) -> int:
    """Return the number of states per sequence; 1 for observations that are not in sequences."""
    if not isinstance(observation, Sequences):
        return 1
    return len(observation.starts) // len(observation.carry)


def replace_states(observation: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the observations of the states, which may be in sequences."""
    if isinstance(observation, Sequences):
        return observation._replace(observation=function(observation.observation))
    return function(observation)


def states_of(observation: Any) -> Any:
    """Return the observations of the states, which may be in sequences."""
    return observation.observation if isinstance(observation, Sequences) else observation
