"""Translates environments of jumanji with one agent.

Observations are named tuples, which become Dict observations. Many have a key `action_mask`. An
action with several parts that has one mask for all combinations becomes a single choice among them.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from trellis.envs.jax.functional import FunctionalEnv, Key, State, Transition
from trellis.envs.jax.suite_spaces import MASK, as_dict, box, shape_of_reset, space_of


class JumanjiEnv(FunctionalEnv):
    """An environment of jumanji.

    Args:
        env: The environment, without wrappers.
        max_episode_steps: Time limit, which a batch cannot exceed; None if it has none.
    """

    def __init__(self, env: Any, max_episode_steps: int | None):
        self._env = env
        self.max_episode_steps = self.own_limit = max_episode_steps
        _, first = shape_of_reset(env.reset)
        if first.reward.shape:
            raise ValueError(f"{type(env).__name__} has several agents, which is not supported")
        self._combined: tuple[int, ...] = ()
        """Sizes of the parts of an action that are one choice here; empty if they are not."""
        observation, spec = as_dict(first.observation), env.action_spec
        sizes = getattr(spec, "num_values", None)
        mask = observation.get(MASK) if isinstance(observation, dict) else None
        if sizes is None:
            self.action_space = box(spec.minimum, spec.maximum, tuple(spec.shape))
        elif np.ndim(sizes) == 0:
            self.action_space = spaces.Discrete(int(sizes))
        elif mask is not None and mask.shape == tuple(int(size) for size in sizes):
            self._combined = tuple(mask.shape)
            self.action_space = spaces.Discrete(math.prod(self._combined))
        else:
            self.action_space = spaces.MultiDiscrete(np.asarray(sizes))
        self.observation_space = space_of(jax.eval_shape(self._observe, first.observation))

    def reset(self, key: Key) -> tuple[State, Any]:
        """Return the state and the observation at the start of an episode."""
        state, step = self._env.reset(key)
        return state, self._observe(step.observation)

    def step(self, key: Key, state: State, action: jax.Array) -> Transition:
        """Return the transition from a state with an action."""
        state = _with_key(state, key)
        if self._combined:
            action = jnp.stack(jnp.unravel_index(action, self._combined)).astype(jnp.int32)
        state, step = self._env.step(state, action)
        ended, goes_on = step.last(), step.discount > 0
        observation = self._observe(step.observation)
        return Transition(state, observation, step.reward, ended & ~goes_on, ended & goes_on)

    def _observe(self, observation: Any) -> Any:
        observation = as_dict(observation)
        if isinstance(observation, dict) and MASK in observation:
            observation = {**observation, MASK: observation[MASK].reshape(-1)}
        return observation


def _with_key(state: Any, key: Key) -> Any:
    """Return the state with our key instead of its own, so that it can be reseeded."""
    if hasattr(state, "_replace"):
        return state._replace(key=key)
    return state.replace(key=key)


def make_jumanji(name: str, **options: Any) -> JumanjiEnv:
    """Return an environment of jumanji; the option `time_limit` replaces its time limit.

    Its own time limit terminates, so it is one step later than ours, which truncates.
    """
    import jumanji

    suite: Any = jumanji
    known = suite.registered_environments()
    if name not in known:
        raise KeyError(name, known)
    env = suite.make(name, **options)
    limit = getattr(env, "time_limit", None)
    if limit is None:
        return JumanjiEnv(env, None)
    return JumanjiEnv(suite.make(name, **{**options, "time_limit": int(limit) + 1}), int(limit))
