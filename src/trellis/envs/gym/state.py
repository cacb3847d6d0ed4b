"""Captures and restores the state of one Gymnasium environment exactly, where that is possible.

There are three ways, and the first that fits is used:

- Gymnasium's own MuJoCo tasks have arrays: the full integration state, and the quantities that the
  last step derived from it. Gymnasium's `set_state` sets only positions and velocities, which does
  not reproduce the future. The derived quantities lag the state by one substep, and Ant, Humanoid
  and others read them before they step. So they are restored unchanged; `mj_forward` would
  recompute them and change the next reward.
- Environments that define `get_state() -> dict of arrays` and `set_state(dict)` have these arrays.
  This module adds the generator `np_random` and the counters of the wrappers.
- All others are copied as a whole, in memory, if a copy made after a few steps continues like the
  original.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.utils import seeding
from numpy.typing import NDArray

from trellis.envs.batch import Restorability
from trellis.envs.gym.copies import EnvState, StateMethod, find_copies, why_not_exact, wrapper_chain
from trellis.envs.gym.masks import MaskedObservation

PROTOCOL = (
    "To make it restorable, give the environment get_state() -> dict of arrays and"
    " set_state(dict), with everything that its future depends on except np_random."
    " The single-path sampler does not need snapshots."
)
# Wrappers that `gymnasium.make` applies, and others whose whole state is these counters. The
# checker never changes the data that passes through it.
WRAPPER_COUNTERS: Mapping[type, tuple[str, ...]] = {
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.OrderEnforcing: ("_has_reset",),
    wrappers.PassiveEnvChecker: (),
    wrappers.ClipAction: (),
    wrappers.RescaleAction: (),
    wrappers.FlattenObservation: (),
    wrappers.DtypeObservation: (),
    MaskedObservation: (),
}
# Quantities that a MuJoCo step computes and the next one may read. Contacts are not included,
# because no task of Gymnasium reads them before it steps.
MUJOCO_DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "cam_xpos", "cam_xmat"),
    *("subtree_com", "cdof", "cinert", "cvel", "cdof_dot", "cacc", "cfrc_int", "cfrc_ext"),
    *("ten_length", "ten_velocity", "actuator_length", "actuator_velocity", "actuator_force"),
    *("qfrc_bias", "qfrc_passive", "qfrc_actuator", "qfrc_constraint", "qacc", "sensordata"),
    *("energy", "subtree_linvel", "subtree_angmom"),
)


def array_state(
    capture_core: Callable[[Any], Mapping[str, Any]],
    restore_core: Callable[[Any, Mapping[str, NDArray[Any]]], None],
) -> StateMethod:
    """Return the method that captures arrays: wrapper counters, generator, and the task's state.

    Args:
        capture_core: Returns the state of the innermost environment.
        restore_core: Writes such a state into the innermost environment.
    """

    def capture(env: gymnasium.Env) -> EnvState:
        core = env.unwrapped
        state = {f"task.{name}": np.array(value) for name, value in capture_core(core).items()}
        for name, value in state.items():
            if value.dtype.kind not in "biuf":
                raise TypeError(
                    f"{name.removeprefix('task.')} of get_state() must be an array of numbers, got"
                    f" dtype {value.dtype}"
                )
        state["generator"] = generator_to_array(core._np_random)
        for name, link, counter in _counters(env):
            value = getattr(link, counter)
            state[name] = np.array(-1 if value is None else value, np.int64)
        return state

    def restore(env: gymnasium.Env, state: EnvState) -> gymnasium.Env:
        core = env.unwrapped
        task = {name[5:]: value.copy() for name, value in state.items() if name.startswith("task.")}
        restore_core(core, task)
        core._np_random = generator_from_array(state["generator"])
        for name, link, counter in _counters(env):
            value = int(state[name])
            setattr(link, counter, None if value < 0 else value)
        return env

    return StateMethod(Restorability.SERIALIZABLE, capture, restore)


def _counters(env: gymnasium.Env) -> Iterator[tuple[str, Any, str]]:
    """Yield the name in a state, the wrapper and the attribute of each counter."""
    for depth, link in enumerate(wrapper_chain(env)[:-1]):
        for counter in WRAPPER_COUNTERS[type(link)]:
            yield f"wrapper.{depth}.{counter}", link, counter


def find_method(env: gymnasium.Env, *, across_processes: bool = False) -> StateMethod | str:
    """Return the best way to restore an environment, or the reason why there is none.

    The reason includes a remedy. The function steps the environment, or a copy of it.

    Args:
        env: The environment.
        across_processes: Whether states must be able to travel to another process.
    """
    core, reasons = env.unwrapped, []
    if all(type(link) in WRAPPER_COUNTERS for link in wrapper_chain(env)[:-1]):
        if type(core).__module__.startswith("gymnasium.envs.mujoco."):
            return array_state(_capture_mujoco, _restore_mujoco)
        if all(callable(getattr(core, name, None)) for name in ("get_state", "set_state")):
            method = array_state(
                lambda core: core.get_state(), lambda core, state: core.set_state(state)
            )
            reason = why_not_exact(env, method)
            if reason is None:
                return method
            reasons.append(f"It has get_state and set_state. {reason}")
    found = find_copies(env, across_processes=across_processes)
    if isinstance(found, str):  # The class says whether the environment still works.
        return type(found)(" ".join([*reasons, found, PROTOCOL]))
    return found


def generator_to_array(generator: np.random.Generator | None) -> NDArray[np.uint64]:
    """Return the state of a PCG64 generator as seven words; all zero if there is no generator."""
    if generator is None:
        return np.zeros(7, np.uint64)
    state = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise NotImplementedError(
            f"np_random must be a PCG64 generator, like Gymnasium's own, got"
            f" {state['bit_generator']}"
        )
    wide = (*divmod(state["state"]["state"], 2**64), *divmod(state["state"]["inc"], 2**64))
    return np.array([*wide, state["has_uint32"], state["uinteger"], 1], np.uint64)


def generator_from_array(words: NDArray[np.uint64]) -> np.random.Generator | None:
    """Return the generator whose state `generator_to_array` returned."""
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
    """Give the environment a new `np_random` with this seed."""
    core = env.unwrapped
    core._np_random, core._np_random_seed = seeding.np_random(seed)


def _capture_mujoco(core: Any) -> Mapping[str, Any]:
    mujoco: Any = importlib.import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    physics = np.empty(mujoco.mj_stateSize(core.model, kind))
    mujoco.mj_getState(core.model, core.data, physics, kind)
    derived = np.concatenate([getattr(core.data, name).ravel() for name in MUJOCO_DERIVED])
    # Reacher and Pusher keep the position of their goal as an attribute.
    own = {name: value for name, value in vars(core).items() if isinstance(value, np.ndarray)}
    return {"physics": physics, "derived": derived, **own}


def _restore_mujoco(core: Any, state: Mapping[str, NDArray[Any]]) -> None:
    mujoco: Any = importlib.import_module("mujoco")
    state = dict(state)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(core.model, core.data, state.pop("physics"), kind)
    derived, at = state.pop("derived"), 0
    for name in MUJOCO_DERIVED:
        target = getattr(core.data, name)
        target[...] = derived[at : at + target.size].reshape(target.shape)
        at += target.size
    for name, value in state.items():
        setattr(core, name, value)
