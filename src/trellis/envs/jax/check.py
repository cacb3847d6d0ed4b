"""Checks a `FunctionalEnv` without running it, by the shapes of what its functions return."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from trellis.envs.errors import describe
from trellis.envs.jax.functional import FunctionalEnv
from trellis.spaces import Space

KEY = jax.ShapeDtypeStruct((2,), np.uint32)


class Finding(NamedTuple):
    """Result of one check."""

    name: str
    """What was checked."""
    problem: str
    """What is wrong and what to do; empty if nothing is."""


def check_functions(env: FunctionalEnv) -> Iterator[Finding]:
    """Yield what `reset` and `step` do, up to the first problem.

    Args:
        env: The environment.
    """
    reset = _trace("reset", env.reset, KEY)
    if isinstance(reset, Finding):
        yield reset
        return
    if not (isinstance(reset, tuple) and len(reset) == 2):
        yield Finding("reset", f"it must return (state, observation), got {_kind(reset)}")
        return
    state, observation = reset
    problem = _observation_problem("reset", observation, env.observation_space)
    yield Finding("reset", problem)
    if problem:
        return
    action = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, env.action_space.sample()))
    moved = _trace("step", env.step, KEY, state, action)
    if isinstance(moved, Finding):
        yield moved
        return
    if not hasattr(moved, "_fields") or "terminated" not in moved._fields:
        yield Finding("step", f"it must return a Transition, got {_kind(moved)}")
        return
    yield Finding("step", _step_problem(state, moved, env.observation_space))


def _trace(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return the shapes that a function returns, or what is wrong with it."""
    try:
        return jax.eval_shape(function, *args)
    except Exception as error:
        words = " ".join(describe(error).split())
        return Finding(name, f"JAX cannot compile it: {words[:300]}")


def _step_problem(state: Any, moved: Any, space: Space) -> str:
    """Return what is wrong with a step, or an empty string."""
    before, after = (_shapes(tree) for tree in (state, moved.state))
    if before != after:
        return f"it must keep the structure of the state: reset has {before}, step has {after}"
    for name in ("reward", "terminated", "truncated"):
        shape = np.shape(getattr(moved, name))
        if shape != ():
            return f"{name} must be a scalar, got shape {shape}; it is one environment, not a batch"
    return _observation_problem("step", moved.observation, space)


def _observation_problem(name: str, observation: Any, space: Space) -> str:
    wanted = _shapes(jax.eval_shape(lambda: jax.tree.map(jnp.asarray, space.sample())))
    found = _shapes(observation)
    if found == wanted:
        return ""
    return f"{name} returns an observation of {found}, but the observation_space has {wanted}"


def _shapes(tree: Any) -> str:
    """Return the structure and the shapes of a pytree, for comparison and for messages."""
    leaves, structure = jax.tree.flatten(tree)
    text = str(jax.tree.unflatten(structure, [_Shape(np.shape(leaf)) for leaf in leaves]))
    return text if len(text) <= 200 else f"{text[:200]}…"


class _Shape:
    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape

    def __repr__(self) -> str:
        return f"shape {self.shape}"


def _kind(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{size}"
