"""How one Gymnasium environment is taken down and put back, where that can be exact.

Three ways, the best that fits is taken:

- Gymnasium's own MuJoCo tasks, as arrays: the full integration state (Gymnasium's `set_state` puts
  back positions and velocities alone, which does not repeat), and what the last step computed from
  it. The latter lags the state by one substep, and Ant, Humanoid and others read it before they
  move, so it is put back as it was; `mj_forward` would compute it anew and change the next reward.
- Environments that define `get_state() -> dict of arrays` and `set_state(dict)`, as arrays. The
  generator `np_random` and the wrappers' counters are added here.
- Everything else by deep copies of the whole environment, in memory, if a copy made after a few
  steps goes on as the original does.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.utils import seeding
from numpy.typing import NDArray

from trellis.envs.batch import Restorability
from trellis.envs.gym.copies import Row, StateMethod, chain, find_copies, why_not_exact

PROTOCOL = (
    "To make it restorable, give the environment get_state() -> dict of arrays and"
    " set_state(dict), with everything that its future depends on except np_random."
    " The single-path sampler needs none of this."
)
# The wrappers that `gymnasium.make` applies, and others whose state is known to be these counters.
# The checker watches and never changes what passes through it.
WRAPPER_COUNTERS: Mapping[type, tuple[str, ...]] = {
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.OrderEnforcing: ("_has_reset",),
    wrappers.PassiveEnvChecker: (),
    wrappers.ClipAction: (),
    wrappers.RescaleAction: (),
    wrappers.FlattenObservation: (),
    wrappers.DtypeObservation: (),
}
# What a MuJoCo step leaves behind for the next one to read. Contacts are not among it: no task of
# Gymnasium reads them before it moves.
MUJOCO_DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "cam_xpos", "cam_xmat"),
    *("subtree_com", "cdof", "cinert", "cvel", "cdof_dot", "cacc", "cfrc_int", "cfrc_ext"),
    *("ten_length", "ten_velocity", "actuator_length", "actuator_velocity", "actuator_force"),
    *("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_constraint", "qacc", "sensordata"),
    *("energy", "subtree_linvel", "subtree_angmom"),
)


class NoState:
    """Cannot be put back; `why_not` says why and what would help."""

    restorability = Restorability.NONE

    def __init__(self, reason: str):
        self.why_not = f"{reason} {PROTOCOL}"

    def take(self, env: gymnasium.Env) -> Row:
        """Never called: the batch says that it is not restorable."""
        raise NotImplementedError(self.why_not)

    def give(self, env: gymnasium.Env, row: Row) -> gymnasium.Env:
        """Never called: the batch says that it is not restorable."""
        raise NotImplementedError(self.why_not)


class ArrayState:
    """The state as arrays: counters of the wrappers, generator, and the task's own part."""

    restorability = Restorability.SERIALIZABLE
    why_not = ""

    def __init__(
        self,
        take_core: Callable[[Any], Mapping[str, Any]],
        give_core: Callable[[Any, Mapping[str, NDArray[Any]]], None],
    ):
        self._take_core, self._give_core = take_core, give_core

    def take(self, env: gymnasium.Env) -> Row:
        """Everything that the future of `env` depends on."""
        core = env.unwrapped
        row = {f"task.{name}": np.array(value) for name, value in self._take_core(core).items()}
        for name, value in row.items():
            if value.dtype.kind not in "biuf":
                raise TypeError(f"{name.removeprefix('task.')} of its state is no array of numbers")
        row["generator"] = generator_to_array(core._np_random)
        for depth, link in enumerate(chain(env)[:-1]):
            for name in WRAPPER_COUNTERS[type(link)]:
                value = getattr(link, name)
                row[f"wrapper.{depth}.{name}"] = np.array(-1 if value is None else value, np.int64)
        return row

    def give(self, env: gymnasium.Env, row: Row) -> gymnasium.Env:
        """Writes the state into `env`."""
        core = env.unwrapped
        task = {name[5:]: value.copy() for name, value in row.items() if name.startswith("task.")}
        self._give_core(core, task)
        core._np_random = generator_from_array(row["generator"])
        for depth, link in enumerate(chain(env)[:-1]):
            for name in WRAPPER_COUNTERS[type(link)]:
                value = int(row[f"wrapper.{depth}.{name}"])
                setattr(link, name, None if value < 0 else value)
        return env


def find_method(env: gymnasium.Env, *, across_processes: bool = False) -> StateMethod:
    """The best way to put this environment back; runs a few steps of a copy to find out."""
    core, reasons = env.unwrapped, []
    if all(type(link) in WRAPPER_COUNTERS for link in chain(env)[:-1]):
        if type(core).__module__.startswith("gymnasium.envs.mujoco."):
            return ArrayState(_take_mujoco, _give_mujoco)
        if callable(getattr(core, "get_state", None)) and callable(
            getattr(core, "set_state", None)
        ):
            method = ArrayState(
                lambda core: core.get_state(), lambda core, row: core.set_state(row)
            )
            reason = why_not_exact(env, method)
            if reason is None:
                return method
            reasons.append(f"It has get_state and set_state. {reason}")
    found = find_copies(env, across_processes=across_processes)
    return NoState(" ".join([*reasons, found])) if isinstance(found, str) else found


def generator_to_array(generator: np.random.Generator | None) -> NDArray[np.uint64]:
    """A PCG64 generator as seven words; all zero where there is none yet."""
    words = np.zeros(7, np.uint64)
    if generator is None:
        return words
    state = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise NotImplementedError(
            f"np_random is a {state['bit_generator']}; Gymnasium's own is PCG64, and only that"
            " can be written as an array"
        )
    low = (1 << 64) - 1
    inner = state["state"]
    words[:] = [
        *(inner["state"] >> 64, inner["state"] & low, inner["inc"] >> 64, inner["inc"] & low),
        *(state["has_uint32"], state["uinteger"], 1),
    ]
    return words


def generator_from_array(words: NDArray[np.uint64]) -> np.random.Generator | None:
    """The generator that `generator_to_array` wrote down."""
    s1, s0, i1, i0, has_uint32, uinteger, present = (int(word) for word in words)
    if not present:
        return None
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": s1 << 64 | s0, "inc": i1 << 64 | i0},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return np.random.Generator(bits)


def reseed(env: gymnasium.Env, seed: int) -> None:
    """A new `np_random` for what the environment draws from now on."""
    core = env.unwrapped
    core._np_random, core._np_random_seed = seeding.np_random(seed)


def _take_mujoco(core: Any) -> Mapping[str, Any]:
    mujoco: Any = importlib.import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(core.model, kind))
    mujoco.mj_getState(core.model, core.data, physics, kind)
    derived = np.concatenate([getattr(core.data, name).ravel() for name in MUJOCO_DERIVED])
    # Reacher and Pusher keep the place of their goal as attributes.
    own = {name: value for name, value in vars(core).items() if isinstance(value, np.ndarray)}
    return {"physics": physics, "derived": derived, **own}


def _give_mujoco(core: Any, row: Mapping[str, NDArray[Any]]) -> None:
    mujoco: Any = importlib.import_module("mujoco")
    row = dict(row)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(core.model, core.data, row.pop("physics"), kind)
    derived, at = row.pop("derived"), 0
    for name in MUJOCO_DERIVED:
        target = getattr(core.data, name)
        target[...] = derived[at : at + target.size].reshape(target.shape)
        at += target.size
    for name, value in row.items():
        setattr(core, name, value)
