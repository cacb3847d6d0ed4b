"""Plain Python environments, put back by copies of the whole environment, in memory.

Nothing says beforehand whether a copy is exact: an environment may draw from the global generator,
or keep its state in a module or a device. So the way is tried once, on a copy, before it is
offered: after a few steps, the copies must go on as the original does.
"""

import copy
from typing import Any, Protocol

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from numpy.typing import NDArray

from trellis.envs.batch import Restorability
from trellis.envs.gym.border import ObservationBorder

Row = dict[str, NDArray[Any]]
TRIAL_STEPS = 3


class StateMethod(Protocol):
    """A way to take the state out of an environment and to put it back."""

    restorability: Restorability
    why_not: str

    def take(self, env: gymnasium.Env) -> Row:
        """Everything that the future of `env` depends on."""
        ...

    def give(self, env: gymnasium.Env, row: Row) -> gymnasium.Env:
        """An environment with that state: `env` itself, or what takes its place."""
        ...


class CopiedState:
    """The state as a deep copy of the environment with all its wrappers."""

    restorability = Restorability.MEMORY
    why_not = ""

    def take(self, env: gymnasium.Env) -> Row:
        """A copy, in an array of one object."""
        return {"env": _boxed(_deepcopy(env))}

    def give(self, env: gymnasium.Env, row: Row) -> gymnasium.Env:
        """A copy of the copy, since a row may be restored many times."""
        return _deepcopy(row["env"].item())


class PickledState:
    """As `CopiedState`, for worker processes: the copy travels as bytes."""

    restorability = Restorability.MEMORY
    why_not = ""

    def take(self, env: gymnasium.Env) -> Row:
        """The pickled environment, in an array of one object."""
        return {"env": _boxed(cloudpickle.dumps(env))}

    def give(self, env: gymnasium.Env, row: Row) -> gymnasium.Env:
        """A new environment from the bytes."""
        return cloudpickle.loads(row["env"].item())


def why_not_exact(env: gymnasium.Env, method: StateMethod) -> str | None:
    """None if `method` repeats what `env` does next, otherwise the reason. Plays with `env`."""
    border = ObservationBorder(env.observation_space)
    actions = copy.deepcopy(env.action_space)
    actions.seed(0)
    played = [actions.sample() for _ in range(2 * TRIAL_STEPS)]
    try:
        env.reset(seed=0)
        _play(env, played[:TRIAL_STEPS], border)
        row = method.take(env)
        futures = [_play(env, played[TRIAL_STEPS:], border)]
        for _ in range(2):
            env = method.give(env, row)
            futures.append(_play(env, played[TRIAL_STEPS:], border))
    except Exception as error:
        return f"A trial run of putting it back failed ({type(error).__name__}: {error})."
    if futures[0] == futures[1] == futures[2]:
        return None
    return (
        "Put back, it does not go on as it did before: it draws random numbers or keeps state"
        " elsewhere (the global np.random or random, a module, a device)."
    )


def find_copies(env: gymnasium.Env, *, across_processes: bool) -> StateMethod | str:
    """A way to copy `env` that was tried and is exact, or the reason why there is none."""
    method = PickledState() if across_processes else CopiedState()
    try:
        subject = method.give(env, method.take(env))
    except Exception as error:
        return f"It cannot be copied ({type(error).__name__}: {error})."
    return why_not_exact(subject, method) or method


def chain(env: gymnasium.Env) -> list[Any]:
    """The environment from its outermost wrapper to its core."""
    links: list[Any] = [env]
    while isinstance(links[-1], gymnasium.Wrapper):
        links.append(links[-1].env)
    return links


def _boxed(value: object) -> NDArray[Any]:
    box = np.empty((), object)
    box[()] = value
    return box


def _deepcopy(env: gymnasium.Env) -> gymnasium.Env:
    """A deep copy that shares what need not or cannot be copied.

    That is what pygame draws on, which nothing reads, and the transition table of Gymnasium's toy
    texts, which nothing writes: a copy of Taxi takes 20 ms with it and 0.2 ms without.
    """
    shared = [
        value
        for link in chain(env)
        for value in vars(link).values()
        if type(value).__module__.partition(".")[0] == "pygame"
    ]
    core = env.unwrapped
    if type(core).__module__.startswith("gymnasium.envs.toy_text."):
        shared.append(getattr(core, "P", None))
    memo: dict[int, Any] = {id(value): value for value in shared}
    if isinstance(core, EzPickle):
        # Its copies are made anew from the constructor's arguments, and forget where they were.
        bare = memo[id(core)] = object.__new__(type(core))
        vars(bare).update(copy.deepcopy(vars(core), memo))
    return copy.deepcopy(env, memo)


def _play(env: gymnasium.Env, actions: list[Any], border: ObservationBorder) -> list[bytes]:
    """What a few steps show, to the bit; a new episode begins where one ends."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        arrays = border.empty(1)
        border.write(arrays, 0, observation)
        seen += [array.tobytes() for array in arrays]
        seen.append(repr((float(reward), bool(terminated), bool(truncated))).encode())
        if terminated or truncated:
            env.reset(seed=1)
    return seen
