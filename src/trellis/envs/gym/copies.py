"""Takes snapshots of plain Python environments by copying the whole environment in memory.

A copy may be inexact: an environment may sample from the global generator, or keep its state in a
module or on a device. So a copy is tested once before copies are used. After a few steps, the copy
must continue exactly like the original.
"""

import contextlib
import copy
import gc
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from trellis.envs.batch import Restorability
from trellis.envs.errors import describe
from trellis.envs.gym.answers import ObservationArrays
from trellis.masks import MASK_KEY, make_legal, mask_size, read_mask

EnvState = dict[str, NDArray[Any]]
"""Everything that the future of one environment depends on, as arrays."""
TRIAL_STEPS = 3
"""Number of steps before and after the copy in a test."""


class StateMethod(NamedTuple):
    """Way to capture and restore the state of an environment."""

    restorability: Restorability
    """Whether the state can be written to disk."""
    capture: Callable[[gymnasium.Env], EnvState]
    """Function that returns everything that the environment's future depends on."""
    restore: Callable[[gymnasium.Env, EnvState], gymnasium.Env]
    """Function that returns an environment with a given state: the same one, or a replacement."""


def copied_state(*, across_processes: bool) -> StateMethod:
    """Return the method that copies the environment with all its wrappers.

    Args:
        across_processes: Whether copies are pickled bytes, which can travel to another process.
    """
    save = cloudpickle.dumps if across_processes else _deepcopy
    load = cloudpickle.loads if across_processes else _deepcopy

    def capture(env: gymnasium.Env) -> EnvState:
        box = np.empty((), object)
        box[()] = save(env)
        return {"env": box}

    # A copy of the copy, because a state may be restored many times.
    return StateMethod(Restorability.MEMORY, capture, lambda _, state: load(state["env"].item()))


def why_not_exact(env: gymnasium.Env, method: StateMethod) -> str | None:
    """Return None if `env` continues exactly after a restore by `method`, else the reason.

    The function steps `env`.
    """
    observations = ObservationArrays(env.observation_space)
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(2 * TRIAL_STEPS)]
    try:
        first, _ = env.reset(seed=0)
        before, _ = _play(env, first, actions[:TRIAL_STEPS], observations)
        state = method.capture(env)
        futures = [_play(env, before, actions[TRIAL_STEPS:], observations)[1]]
        for _ in range(2):
            env = method.restore(env, state)
            futures.append(_play(env, before, actions[TRIAL_STEPS:], observations)[1])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too.
        return f"A test of restoring it failed ({describe(error)})."
    if futures[0] == futures[1] == futures[2]:
        return None
    return (
        "After a restore it continues differently: it has random numbers or state outside of the"
        " object (the global np.random or random, a module, a device)."
    )


def repeats(env: gymnasium.Env) -> tuple[bool, Any]:
    """Return whether `env` plays the same episode twice from one seed, and the info of a reset.

    The function steps `env`.
    """
    observations = ObservationArrays(env.observation_space)
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(TRIAL_STEPS)]
    played, info = [], None
    try:
        for _ in range(2):
            first, info = env.reset(seed=0)
            played.append(_play(env, first, actions, observations)[1])
    except (KeyboardInterrupt, ManyRewardsError):
        raise
    except BaseException:  # Training gets the same error, and says where.
        return True, info
    return played[0] == played[1], info


class ManyRewardsError(Exception):
    """An environment returned a vector of rewards.

    Args:
        shape: Shape of the rewards.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        super().__init__(f"rewards of shape {shape}")


class BrokenByCopy(str):
    """Reason why there are no copies: one of them broke the environment, which must be replaced."""


def find_copies(env: gymnasium.Env, *, across_processes: bool) -> StateMethod | str:
    """Return a tested way to copy `env`, or the reason why there is none."""
    with _silent_finalizers():
        found = _find_copies(env, across_processes=across_processes)
        if isinstance(found, str):
            gc.collect()  # Copies that were not finished may fail when they are deleted.
        return found


@contextlib.contextmanager
def _silent_finalizers() -> Iterator[None]:
    """Print no traceback for a `__del__` that fails, which Python ignores otherwise."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _find_copies(env: gymnasium.Env, *, across_processes: bool) -> StateMethod | str:
    at_first = _has_finalizers(env)
    found, later = _try_copies(env, across_processes=across_processes)
    if not (at_first or later):
        return found
    # Objects with __del__ may close what they share with the original, for example the physics
    # server of PyBullet. The copies are deleted now: later, another environment might have the
    # number of their server.
    gc.collect()
    try:
        env.reset(seed=0)
        if not at_first:  # Now it is connected to its simulator, so copies share it.
            found, _ = _try_copies(env, across_processes=across_processes)
            gc.collect()
            env.reset(seed=0)
        return found
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return BrokenByCopy(
            f"A copy of it closes the simulator that it shares ({describe(error)})."
        )


def _has_finalizers(env: gymnasium.Env) -> bool:
    """Return whether a part of the environment defines `__del__`, as far as it can be copied."""
    memo: dict[int, Any] = {}
    with contextlib.suppress(Exception, SystemExit):
        copy.deepcopy(env, memo)
    return any(hasattr(type(part), "__del__") for part in memo.values())


def _try_copies(env: gymnasium.Env, *, across_processes: bool) -> tuple[StateMethod | str, bool]:
    """Return the way to copy `env`, or why there is none, and whether played copies have `__del__`.

    An environment may connect to its simulator in its first reset.
    """
    method = copied_state(across_processes=across_processes)
    try:
        subject = method.restore(env, method.capture(env))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too.
        return f"It cannot be copied ({describe(error)}).", False
    return why_not_exact(subject, method) or method, _has_finalizers(subject)


def wrapper_chain(env: gymnasium.Env) -> list[Any]:
    """Return the environment and its wrappers, from the outermost to the core."""
    links: list[Any] = [env]
    while isinstance(links[-1], gymnasium.Wrapper):
        links.append(links[-1].env)
    return links


def _deepcopy(env: gymnasium.Env) -> gymnasium.Env:
    """Return a deep copy that shares pygame surfaces and toy-text tables with the original.

    Nothing reads the surfaces of pygame, which cannot be copied. Nothing writes the transition
    table of Gymnasium's toy texts: a copy of Taxi takes 20 ms with the table and 0.2 ms without.
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
        # EzPickle builds copies from the constructor's arguments, which loses the state.
        bare = memo[id(core)] = object.__new__(type(core))
        vars(bare).update(copy.deepcopy(vars(core), memo))
    return copy.deepcopy(env, memo)


def _play(
    env: gymnasium.Env, observation: Any, actions: list[Any], observations: ObservationArrays
) -> tuple[Any, list[bytes]]:
    """Take a few steps; after the end of an episode a new one starts.

    Args:
        env: The environment.
        observation: Its present observation, whose mask makes the actions legal.
        actions: Actions to take.
        observations: Converter of observations.

    Returns:
        The last observation, and the results of all steps as bytes.
    """
    results, space = [], env.action_space
    masked = mask_size(env.observation_space)
    for action in actions:
        if masked:
            action = make_legal(action, space, read_mask(observation[MASK_KEY], space))
        observation, reward, terminated, truncated, _ = env.step(action)
        shape = np.asarray(reward).shape
        if math.prod(shape) > 1:
            raise ManyRewardsError(shape)
        arrays = observations.empty(1)
        observations.write(arrays, 0, observation)
        results += [array.tobytes() for array in arrays]
        results.append(repr((float(reward), bool(terminated), bool(truncated))).encode())
        if terminated or truncated:
            observation, _ = env.reset(seed=1)
    return observation, results
