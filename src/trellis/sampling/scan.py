"""Advances environments that are pure functions in one compiled scan.

One step of the scan normalizes, acts, steps the environments, keeps the final observations and
resets what has ended. Noise and seeds are inputs.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt32

from trellis.arrays import Array
from trellis.masks import has_choices
from trellis.policies.normalizer import standardize
from trellis.policies.policy import Policy
from trellis.sampling.environment import Compilable
from trellis.spaces import Encoder

Scaling = tuple[Array, Array]
"""Mean and factor that standardize observations."""


class Randomness(NamedTuple):
    """All random numbers of the paths of one iteration."""

    noise: Float[np.ndarray, "time env ..."]
    """Noise of the actions."""
    seeds: Int[np.ndarray, " most_episodes"]
    """Seeds of new episodes, in the order in which episodes end."""


class Paths(NamedTuple):
    """Paths of one iteration, (time, environment) in every array."""

    raw_observation: Float[Array, "time env features"]
    """Encoded observation before normalization."""
    action: Shaped[Array, "time env ..."]
    """Action that the policy sampled, not clipped."""
    log_q: Float[Array, "time env"]
    """log q(a|s) of the action."""
    reward: Float[Array, "time env"]
    """Reward of the step."""
    terminated: Bool[Array, "time env"]
    """Whether the step ended its episode in a terminal state."""
    truncated: Bool[Array, "time env"]
    """Whether the step ended its episode early."""
    age: Int[Array, "time env"]
    """Time step within the episode."""
    key: UInt32[Array, "time env 2"]
    """Key of the episode."""
    final: Any
    """What `KeepFinal` keeps of the observation after the step, before a reset."""

    @property
    def ended(self) -> Bool[Array, "time env"]:
        """Whether the step ended its episode, by termination or by truncation."""
        return self.terminated | self.truncated


KeepFinal = Callable[[Array, Array], Any]
"""Function of the normalized observations after a step, and of which of them are of a truncated
episode; it returns what the paths keep. Most of them are seen again as the next observation."""


@dataclasses.dataclass(frozen=True)
class Walker:
    """What a scan of paths consists of; a static argument of compiled functions."""

    policy: Policy
    """The policy that acts."""
    functions: Any
    """Functions that reset and step the environments."""
    encode: Encoder
    """Function from observations to features."""
    map_actions: Any
    """Function from actions of the policy to actions of the environments."""
    masked_factors: tuple[int, ...] = ()
    """Sizes of the factors of an action; empty if observations have no action masks."""

    @classmethod
    def of(cls, env: Compilable, policy: Policy, encode: Encoder) -> "Walker":
        """Return the scan of a policy in a batch of environments."""
        return cls(policy, env.functions, encode, env.map_actions, env.masked_factors)

    def mask_of(self, encoded: Array) -> Array:
        """Return the action masks that encoded observations (..., features) end with."""
        return encoded[..., encoded.shape[-1] - sum(self.masked_factors) :]

    def is_usable(self, encoded: Array) -> Array:
        """Return whether encoded observations are finite and allow an action, (...)."""
        finite = jnp.isfinite(encoded).all(axis=-1)
        if not self.masked_factors:
            return finite
        return finite & has_choices(self.mask_of(encoded), self.masked_factors)


Carry = tuple[Any, Array]
"""Rows, and the number of seeds of new episodes that are used."""
Advance = Callable[[Carry, Array], tuple[Carry, Paths]]
"""One step of a scan: a function of the carry and of the noise of the actions."""


def walk(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    rows: Any,
    random: Randomness,
    keep_final: KeepFinal = lambda observation, truncated: observation,
) -> tuple[Any, Paths]:
    """Advance all environments by as many steps as there is noise.

    Args:
        walker: Policy and environments.
        theta: Parameters of the policy.
        scaling: Mean and factor that standardize observations; None leaves them unchanged.
        rows: State of the environments.
        random: Noise and seeds.
        keep_final: What to keep of final observations. Default: all of every observation.

    Returns:
        The rows after the last step, and the paths.
    """
    advance = advance_with(walker, theta, scaling, random.seeds, keep_final)
    (rows, _), paths = jax.lax.scan(advance, (rows, jnp.zeros((), jnp.int32)), random.noise)
    return rows, paths


def advance_with(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    seeds: Int[Array, " most_episodes"],
    keep_final: KeepFinal = lambda observation, truncated: observation,
) -> Advance:
    """Return the function that advances all environments by one step; see `walk`."""
    policy, distribution = walker.policy, walker.policy.distribution

    def advance(carry: Carry, noise: Array) -> tuple[Carry, Paths]:
        rows, used = carry
        raw = walker.encode(rows.observation)
        observation = scaled(raw, scaling)
        params, _ = policy.distribution_params(theta, observation)
        action = distribution.sample(params, noise)
        moved, (reward, terminated, truncated) = walker.functions.step(
            rows, walker.map_actions(action)
        )
        ended = terminated | truncated
        order = jnp.cumsum(ended.astype(jnp.int32))
        path = Paths(
            raw,
            action,
            distribution.log_prob(params, action),
            reward,
            terminated,
            truncated,
            rows.elapsed,
            rows.key,
            keep_final(scaled(walker.encode(moved.observation), scaling), truncated),
        )
        key = keys_of(seeds[used + order - 1])
        return (walker.functions.reset(moved, ended, key), used + order[-1]), path

    return advance


def keys_of(seeds: Int[Array, " env"]) -> Array:
    """Return the raw keys of seeds below 2³², (env, 2), like `jax.random.PRNGKey` of each."""
    seeds = seeds.astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(seeds), seeds], axis=-1)


compiled_walk = jax.jit(walk, static_argnums=(0, 5))


def scaled(raw: Array, scaling: Scaling | None) -> Array:
    """Return standardized observations; without a scaling, they stay unchanged."""
    return raw if scaling is None else standardize(raw, *scaling)
