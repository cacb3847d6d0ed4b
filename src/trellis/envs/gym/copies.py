"""Snapshots of plain Python environments: copies of the whole environment, in memory.

Nothing says beforehand whether a copy is exact. An environment may sample from the global
generator, or keep its state in a module or a device. So copies are tried once before they are
offered: after a few steps, the copy must continue as the original does.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from trellis.envs.batch import Restorability
from trellis.envs.errors import describe
from trellis.envs.gym.answers import ObservationArrays

EnvState = dict[str, NDArray[Any]]
"""What the future of one environment depends on, as arrays."""
TRIAL_STEPS = 3


class StateMethod(NamedTuple):
    """A way to capture and restore the state of an environment."""

    restorability: Restorability
    capture: Callable[[gymnasium.Env], EnvState]
    """From an environment to everything that its future depends on."""
    restore: Callable[[gymnasium.Env, EnvState], gymnasium.Env]
    """From an environment and a state to one with that state: itself, or one that replaces it."""


def copied_state(*, across_processes: bool) -> StateMethod:
    """Return the method whose state is a copy of the environment with all its wrappers.

    Args:
        across_processes: Whether copies are pickled bytes, which can travel to another process.
    """
    save = cloudpickle.dumps if across_processes else _deepcopy
    load = cloudpickle.loads if across_processes else _deepcopy

    def capture(env: gymnasium.Env) -> EnvState:
        box = np.empty((), object)
        box[()] = save(env)
        return {"env": box}

    # A copy of the copy, since a state may be restored many times.
    return StateMethod(Restorability.MEMORY, capture, lambda _, state: load(state["env"].item()))


def why_not_exact(env: gymnasium.Env, method: StateMethod) -> str | None:
    """Return None if `method` repeats what `env` does next, else the reason. Steps `env`."""
    observations = ObservationArrays(env.observation_space)
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(2 * TRIAL_STEPS)]
    try:
        env.reset(seed=0)
        _play(env, actions[:TRIAL_STEPS], observations)
        state = method.capture(env)
        futures = [_play(env, actions[TRIAL_STEPS:], observations)]
        for _ in range(2):
            env = method.restore(env, state)
            futures.append(_play(env, actions[TRIAL_STEPS:], observations))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too.
        return f"A trial restore failed ({describe(error)})."
    if futures[0] == futures[1] == futures[2]:
        return None
    return (
        "After a restore it does not continue as before: it samples random numbers or keeps state"
        " elsewhere (the global np.random or random, a module, a device)."
    )


def repeats(env: gymnasium.Env) -> bool:
    """Return whether `env` plays the same episode twice from one seed. Steps `env`."""
    observations = ObservationArrays(env.observation_space)
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(TRIAL_STEPS)]
    played = []
    try:
        for _ in range(2):
            env.reset(seed=0)
            played.append(_play(env, actions, observations))
    except KeyboardInterrupt:
        raise
    except BaseException:  # Training will meet the same error, and say where.
        return True
    return played[0] == played[1]


def find_copies(env: gymnasium.Env, *, across_processes: bool) -> StateMethod | str:
    """Return a tried and exact way to copy `env`, or the reason why there is none."""
    method = copied_state(across_processes=across_processes)
    try:
        subject = method.restore(env, method.capture(env))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too.
        return f"It cannot be copied ({describe(error)})."
    return why_not_exact(subject, method) or method


def wrapper_chain(env: gymnasium.Env) -> list[Any]:
    """Return the environment and its wrappers, from the outermost to the core."""
    links: list[Any] = [env]
    while isinstance(links[-1], gymnasium.Wrapper):
        links.append(links[-1].env)
    return links


def _deepcopy(env: gymnasium.Env) -> gymnasium.Env:
    """Return a deep copy that shares what need not or cannot be copied.

    These are the surfaces of pygame, which nothing reads, and the transition table of Gymnasium's
    toy texts, which nothing writes: a copy of Taxi takes 20 ms with it and 0.2 ms without.
    """
    shared = [
        value
        for link in wrapper_chain(env)
        for value in vars(link).values()
        if type(value).__module__.partition(".")[0] == "pygame"
    ]
    core = env.unwrapped
    if type(core).__module__.startswith("gymnasium.envs.toy_text."):
        shared.append(getattr(core, "P", None))
    memo: dict[int, Any] = {id(value): value for value in shared}
    if isinstance(core, EzPickle):
        # Its own copies are built from the constructor's arguments and lose the state.
        bare = memo[id(core)] = object.__new__(type(core))
        vars(bare).update(copy.deepcopy(vars(core), memo))
    return copy.deepcopy(env, memo)


def _play(env: gymnasium.Env, actions: list[Any], observations: ObservationArrays) -> list[bytes]:
    """Return the bytes that a few steps show; where an episode ends, a new one starts."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        arrays = observations.empty(1)
        observations.write(arrays, 0, observation)
        seen += [array.tobytes() for array in arrays]
        seen.append(repr((float(reward), bool(terminated), bool(truncated))).encode())
        if terminated or truncated:
            env.reset(seed=1)
    return seen
