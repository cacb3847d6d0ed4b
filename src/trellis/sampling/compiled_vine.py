"""Collects vine of environments that are pure functions, in two compiled loops (Sec. 5.2).

The first loop is the scan of the compiled single path, which also captures the states of the
rollout set. The second one advances all rollouts together until the last has ended. In between, the
first actions are proposed by the code of the step-by-step `Vine`. Noise and seeds come from its
streams, in its order. So both give the same samples: the same bits for the same actions, and equal
to rounding with the policy in the loop, which NumPy computes there and XLA here.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from trellis.arrays import Array
from trellis.inputs import with_lead
from trellis.policies.normalizer import Normalizer
from trellis.sampling.compiled import CompiledPath, scaling_of
from trellis.sampling.environment import Branching, Compilable
from trellis.sampling.rollouts import Outcomes, Rollouts
from trellis.sampling.samples import Samples
from trellis.sampling.scan import (
    Paths,
    Randomness,
    Scaling,
    Walker,
    advance_with,
    keys_of,
    scaled,
)
from trellis.sampling.vine import Vine


@functools.partial(jax.jit, static_argnums=0)
def walk_trunks(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    rows: Any,
    random: Randomness,
    place: Int[Array, "state 2"],
) -> tuple[Any, Paths, Any]:
    """Advance all trunks like `walk`, and capture the rows at some places.

    Args:
        walker: Policy and environments.
        theta: Parameters of the policy.
        scaling: Mean and factor that standardize observations; None leaves them unchanged.
        rows: State of the environments.
        random: Noise and seeds.
        place: (time, environment) of the rows to capture.

    Returns:
        The rows after the last step, the paths, and the captured rows in the order of `place`.
    """
    states = len(place)
    # Number of the place at each (time, environment); those out of range are not written.
    slots = jnp.full(random.noise.shape[:2], states).at[tuple(place.T)].set(jnp.arange(states))
    advance = advance_with(walker, theta, scaling, random.seeds)

    def visit(carry: Any, inputs: tuple[Array, Array]) -> tuple[Any, Paths]:
        (rows, used), captured = carry
        noise, slot = inputs
        captured = jax.tree.map(
            lambda kept, leaf: kept.at[slot].set(leaf, mode="drop"), captured, rows
        )
        moved, path = advance((rows, used), noise)
        return (moved, captured), path

    captured = jax.tree.map(lambda leaf: leaf[place[:, 1]], rows)
    first = (rows, jnp.zeros((), jnp.int32)), captured
    ((rows, _), captured), paths = jax.lax.scan(visit, first, (random.noise, slots))
    return rows, paths, captured


class CompiledTrunks(CompiledPath):
    """Collects trunks in one compiled scan; the states are rows of the environments."""

    def collect_trunks(
        self, theta: np.ndarray, normalize: Normalizer, place: np.ndarray, iteration: int
    ) -> tuple[Samples, Any]:
        """Collect trunks and the rows of the states; see `TrunkSampler`."""
        self._place = place
        samples, _ = self.collect(theta, normalize, None, iteration)
        return samples, self._captured

    def _walk(
        self, theta: np.ndarray, scaling: Scaling | None, random: Randomness
    ) -> tuple[Any, Paths]:
        rows, paths, self._captured = walk_trunks(
            self.walker, theta, scaling, self.env.rows, random, self._place
        )
        return rows, paths


class Progress(NamedTuple):
    """State of all rollouts, of which there are K from each of C states: K·C rows."""

    t: Int[Array, ""]
    """Number of steps so far."""
    rows: Any
    """State of the environments."""
    action: Shaped[Array, "row ..."]
    """Actions of the next step."""
    active: Bool[Array, " row"]
    """Whether the rollout continues."""
    reward: Float[Array, "time row"]
    """Rewards so far; 0 after the end of a rollout."""
    length: Int[Array, " row"]
    """Number of steps of each rollout."""
    terminated: Bool[Array, " row"]
    """Whether the rollout ended in a terminal state."""
    usable: Bool[Array, ""]
    """Whether all values of the last step are finite, and all active rows have a legal action."""


@functools.partial(jax.jit, static_argnums=0)
def run_rollouts(
    walker: Walker,
    theta: Array,
    scaling: Scaling | None,
    rows: Any,
    seeds: Int[Array, "stream state"],
    noise: Float[Array, "time stream state ..."],
    first_action: Shaped[Array, "action state ..."],
    runs: Bool[Array, "action state"],
) -> Progress:
    """Run rollouts until the last one has ended, or until a value of the environment is invalid.

    Args:
        walker: Policy and environments.
        theta: Parameters of the policy.
        scaling: Mean and factor that standardize observations; None leaves them unchanged.
        rows: The C states.
        seeds: Seeds of the environments; one stream, or one for each of the K actions.
        noise: Noise of the actions after each step, in the same streams.
        first_action: First actions.
        runs: Whether each rollout runs at all.
    """
    (K, C), distribution = runs.shape, walker.policy.distribution
    copies = jnp.tile(jnp.arange(C), K)
    rows = jax.tree.map(lambda leaf: leaf[copies], rows)
    rows = walker.functions.reseed(rows, keys_of(jnp.broadcast_to(seeds, (K, C)).ravel()))

    def act(observation: Array, noise: Array) -> Array:
        # As in `Rollouts`, the K rollouts of a state have the same position in K equal products.
        inputs = scaled(observation, scaling).reshape(K, C, -1)
        params, _ = walker.policy.distribution_params(theta, inputs)
        action = distribution.sample(params, noise)
        return action.reshape(K * C, *action.shape[2:])

    def advance(old: Progress) -> Progress:
        rows, (reward, terminated, truncated) = walker.functions.step_active(
            old.rows, walker.map_actions(old.action), old.active
        )
        observation = walker.encode(rows.observation)
        active = old.active & ~(terminated | truncated)
        finite = jnp.isfinite(observation).all() & jnp.isfinite(reward).all()
        return Progress(
            old.t + 1,
            rows,
            act(observation, noise[old.t]).astype(old.action.dtype),
            active,
            old.reward.at[old.t].set(reward),
            old.length + old.active,
            old.terminated | terminated,
            finite & (walker.is_usable(observation) | ~active).all(),
        )

    def continues(progress: Progress) -> Array:
        return (progress.t < len(noise)) & progress.active.any() & progress.usable

    first = Progress(
        jnp.int32(0),
        rows,
        first_action.reshape(K * C, *first_action.shape[2:]),
        runs.ravel(),
        jnp.zeros((len(noise), K * C), jnp.float32),
        jnp.zeros(K * C, jnp.int32),
        jnp.zeros(K * C, bool),
        jnp.bool_(True),
    )
    return jax.lax.while_loop(continues, advance, first)


class CompiledRollouts(Rollouts):
    """Runs each chunk of rollouts in one compiled loop; the states are rows of environments."""

    def _run_chunk(
        self,
        env: Branching,
        theta: np.ndarray,
        normalize: Normalizer,
        snapshot: Any,
        first_action: np.ndarray,
        runs: np.ndarray,
        rng: np.random.Generator,
        carry: np.ndarray | None,
    ) -> Outcomes:
        assert isinstance(env, Compilable)
        assert carry is None
        seeds, noise = self._randomness(rng)
        unused = np.zeros_like(noise, shape=(1, *noise.shape[1:]))  # after the last step
        walker = Walker.of(env, self._policy, self._encode)
        end = run_rollouts(
            walker,
            theta,
            scaling_of(normalize),
            snapshot,
            seeds.astype(np.int32),
            np.concatenate([noise, unused]),
            np.asarray(first_action),
            runs,
        )
        observation = jax.tree.map(np.asarray, end.rows.observation)
        reward = np.asarray(end.reward, np.float64)
        if not end.usable:
            env.rows = end.rows  # the message names seed and step
            env.check_finite("observation", observation)
            env.check_finite("reward", reward[end.t - 1])
            active = np.flatnonzero(end.active)
            env.check_masks(walker.mask_of(self._encode(observation))[active], active)
        reward_sum, discount = np.zeros(runs.size), 1.0
        for values in reward[: int(end.t)]:
            reward_sum += discount * values
            discount *= self._gamma
        flags = np.asarray(end.length, np.int64), np.asarray(end.terminated)
        results = reward_sum, *flags, self._encode(observation)
        shape = self._actions, self._chunk_states
        return Outcomes(*(with_lead(values, *shape) for values in results))


class CompiledVine(Vine):
    """Vine for environments that are pure functions; like `Vine`, but compiled."""

    trunks_kind = CompiledTrunks
    rollouts_kind = CompiledRollouts
