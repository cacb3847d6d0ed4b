"""Compares an exported policy with `SavedPolicy` on random observations.

A policy with memory acts in episodes: every step compares the action and the next carry, from the
same carry on both sides.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis.actions import box_range
from trellis.export.choices import distribution_parts
from trellis.export.observations import BATCH, OBSERVATIONS, random_observations
from trellis.export.program import ExportError, Program, input_arrays
from trellis.policies.distributions import Categoricals
from trellis.policies.masked import legal_choices
from trellis.policies.saved import SavedPolicy
from trellis.spaces import Observation, Space, observation_encoder

TOLERANCE = 1e-5
"""Largest allowed error, as a fraction of the action's range or of the largest logit, or absolute
where these are below 1."""

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""A function from the inputs of a program, with a batch axis, to its outputs."""

__all__ = ["OBSERVATIONS", "TOLERANCE", "Run", "verify"]


def verify(saved: SavedPolicy, program: Program, run: Run, *, seed: int = 0) -> float:
    """Compare an exported policy with ours and return the largest error.

    Args:
        saved: The policy.
        program: Its program, which names the inputs and outputs.
        run: The exported policy in its own runtime.
        seed: Seed of the observations.

    Returns:
        The largest error as a fraction of the tolerance's scale; 0 for equal discrete actions.

    Raises:
        ExportError: An action differs.
    """
    worst, carry = 0.0, saved.policy.initial_carry(BATCH)
    for observation in random_observations(saved, np.random.default_rng(seed)):
        got = run(input_arrays(program, observation, carry))
        params = _params(saved, observation, carry)
        actions = saved.act(observation, deterministic=True, carry=carry)
        if carry is not None:
            actions, carry = actions
            worst = max(worst, _relative(got[-1], carry, 1.0))
        parts = zip(program.outputs, got, params, strict=False)  # The carry has no parameters.
        for output, values, (part, mu) in parts:
            space: Any = saved.spaces[1]
            expected = actions
            for key in output.path:
                space, expected = space[key], expected[key]
            expected = np.asarray(expected)
            if values.shape != expected.shape:
                raise ExportError(
                    f"the exported policy returns {output.name} of shape {values.shape[1:]}, not"
                    f" {expected.shape[1:]}; nothing was written"
                )
            worst = max(worst, _error(space, part, mu, expected, values))
    if not worst <= TOLERANCE:
        raise ExportError(
            f"the exported policy differs from ours by {worst:.2g}, more than {TOLERANCE:g};"
            " nothing was written. Check that the parameters are finite, or use another --format"
        )
    return worst


def _params(
    saved: SavedPolicy, observation: Observation, carry: np.ndarray | None
) -> list[tuple[Any, Any]]:
    """Return each part of the policy's distribution with its parameters."""
    encode = observation_encoder(saved.spaces[0], saved.config.policy.pictures)[1]
    features = saved.normalizer(encode(observation))
    params, _ = saved.policy.distribution_params(saved.theta, features, carry)
    parts = distribution_parts(saved.policy.distribution)
    single = parts == (saved.policy.distribution,)
    return [*zip(parts, [params] if single else params, strict=True)]


def _error(space: Space, part: Any, params: Any, expected: np.ndarray, got: np.ndarray) -> float:
    """Return the largest error of a batch of actions, or of a part of them."""
    if isinstance(space, spaces.Box):
        half = box_range(space)[4]
        return _relative(got, expected, np.abs(expected) if half is None else half)
    # Rounding may decide between logits that are equal to all digits that count.
    logits = np.asarray(params, np.float64)
    legal = np.where(legal_choices(logits), np.abs(logits), 0.0)
    chosen = [_choices(part, space, logits, actions) for actions in (expected, got)]
    return _relative(chosen[1], chosen[0], legal.max(axis=1, keepdims=True))


def _relative(got: np.ndarray, expected: np.ndarray, scale: np.ndarray | float) -> float:
    """Return the largest error as a fraction of a scale, or of 1 where that is smaller."""
    error = np.abs(got.astype(np.float64) - expected) / np.maximum(1.0, scale)
    return float(np.max(error, initial=0.0)) if np.isfinite(error).all() else np.inf


def _choices(
    distribution: Categoricals, space: Space, logits: np.ndarray, actions: np.ndarray
) -> np.ndarray:
    """Return the logits of the chosen actions, one per factor."""
    sizes = np.array(distribution.sizes)
    start = getattr(space, "start", 0)
    index = np.reshape(actions - start, (len(actions), len(sizes))).astype(np.int64)
    if (index < 0).any() or (index >= sizes).any():
        return np.full(index.shape, np.inf)
    return np.take_along_axis(logits, index + np.cumsum(sizes) - sizes, axis=1)
