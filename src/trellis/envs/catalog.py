"""Lists environments and creates batches of them: `list_environments` and `make`.

Some environments have a batched implementation in Trellis. All others use Gymnasium's own
implementation, one object per environment of the batch. So do options that ours does not have.
Simulators are imported when they are needed. The list reads Gymnasium's registry and creates no
environment.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from trellis.envs import lookup
from trellis.envs.batch import BatchEnv, Restorability
from trellis.envs.games import GAMES, game_class
from trellis.envs.jax import suites

ARRAYS, PHYSICS, EMULATORS = "batched arrays", "batched physics", "batched emulators"
OBJECTS, FUNCTIONS = "python objects", "jax functions"
# Modules of Gymnasium's small environments.
SMALL = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
# Restorability by the module of an environment.
RESTORABLE = {
    "trellis.envs": Restorability.SERIALIZABLE.value,
    "gymnasium.envs.mujoco": Restorability.SERIALIZABLE.value,
    "gymnasium.envs.classic_control": Restorability.MEMORY.value,
    "gymnasium.envs.toy_text": Restorability.MEMORY.value,
    "gymnasium.envs.box2d": "not restorable: Box2D's world cannot be copied",
}


@dataclasses.dataclass(frozen=True)
class Listing:
    """Entry of `list_environments`: an environment that can be trained."""

    env_id: str
    """Id of the environment."""
    runs: str
    """Implementation: batched physics, arrays or emulators, JAX functions or Python objects."""
    restorable: str
    """Whether the environment can be restored, which vine needs."""
    missing: str
    """Command that installs a missing package; empty if nothing is missing."""


@dataclasses.dataclass(frozen=True)
class Batched:
    """Batched implementation of an environment in Trellis."""

    make: Callable[..., BatchEnv]
    """Function that creates a batch from `num_envs`, `workers`, `nthread` and options."""
    options: set[str]
    """Names of the options that the implementation supports."""
    runs: str
    """Kind of the implementation, for the list."""
    accepts: Callable[[dict[str, Any]], bool] = lambda options: True
    """Function that returns whether the implementation supports the values of some options."""


def make(
    env: str | Callable[..., gymnasium.Env] | Any,
    num_envs: int,
    *,
    workers: int = 0,
    nthread: int = 0,
    **kwargs: Any,
) -> BatchEnv:
    """Create a batch of an environment with the fastest implementation that is available.

    Args:
        env: An id (`trellis envs` lists them), a callable that returns a new `gymnasium.Env`, or a
            `trellis.envs.jax.functional.FunctionalEnv`.
        num_envs: Size of the batch.
        workers: Number of worker processes, for environments without a batched implementation; 0
            for none. For Atari games it is the number of processes for each of two lanes; 0 means
            `nthread`, or one per core.
        nthread: Number of threads for batched physics; 0 for all cores.
        **kwargs: Options of the environment. If Trellis's implementation does not have one of
            them, Gymnasium's implementation is used. Environments without a batched implementation
            also have `worker_timeout_seconds`, see `trellis.envs.gym.make.make_gym`.

    Returns:
        A batch. Close it with `close` when it is no longer needed.

    Raises:
        UnknownEnvironmentError: No environment has this id.
        MissingExtraError: The environment needs a package that is not installed.

    Example:
        >>> import numpy as np
        >>> batch = make("CartPole-v1", num_envs=2)
        >>> batch.reset(np.arange(2), seeds=np.arange(2)).shape
        (2, 4)
        >>> batch.close()
    """
    if suites.is_functional(env):
        return suites.make_functional_batch(env, num_envs, **kwargs)
    if isinstance(env, str) and suites.suite_of(env) is not None:
        return suites.make_suite_batch(env, num_envs, **kwargs)
    ours, options = _implementation(env, kwargs) if isinstance(env, str) else (None, kwargs)
    if ours is not None:
        return ours.make(num_envs, workers, nthread, **options)
    from trellis.envs.gym.make import make_gym

    return make_gym(env, num_envs, workers=workers, **kwargs)


def is_batched(env_id: str, options: Mapping[str, Any]) -> bool:
    """Return whether `make` would use a batched implementation of Trellis.

    Args:
        env_id: Id of the environment.
        options: Options of the environment, as for `make`.
    """
    if suites.suite_of(env_id) is not None:
        return True
    own = {name: value for name, value in options.items() if name not in ("workers", "nthread")}
    return _implementation(env_id, own)[0] is not None


def _implementation(
    env_id: str, given: Mapping[str, Any]
) -> tuple["Batched | None", dict[str, Any]]:
    """Return Trellis's implementation, if it supports the options, and the options for it."""
    spec, options = lookup.find_spec(env_id), dict(given)
    ours = batched(spec)
    if ours is None:
        return None, options
    # Batched implementations can always render pictures.
    if options.get("render_mode") in (None, "rgb_array"):
        options.pop("render_mode", None)
    supported = set(options) <= ours.options and ours.accepts(options)
    return (ours, options) if supported or spec.id.startswith("trellis/") else (None, options)


def list_environments() -> list[Listing]:
    """Return all environments that can be trained: batched ones, games, JAX suites, then others.

    Example:
        >>> from trellis.envs import list_environments
        >>> next(entry for entry in list_environments() if entry.env_id == "CartPole-v1").runs
        'batched arrays'
    """
    rank = {ARRAYS: 0, PHYSICS: 0, EMULATORS: 1, FUNCTIONS: 2, OBJECTS: 3}
    rows = [_listing(spec) for spec in lookup.listed() if suites.suite_of(spec.id) is None]
    restorable = Restorability.SERIALIZABLE.value
    rows += [Listing(name, FUNCTIONS, restorable, need) for name, need in suites.listed()]
    return sorted(rows, key=lambda row: (rank[row.runs], row.env_id))


def _listing(spec: EnvSpec) -> Listing:
    ours, module, missing = batched(spec), lookup.module_of(spec), lookup.missing_package(spec)
    if ours is not None:
        return Listing(spec.id, ours.runs, Restorability.SERIALIZABLE.value, missing)
    runs = PHYSICS if spec.id in (*lookup.PAPER_ON_MUJOCO, *lookup.SEEING) else OBJECTS
    known = [text for prefix, text in RESTORABLE.items() if module.startswith(prefix)]
    restorable = known[0] if known else f"{Restorability.MEMORY.value}, if it can be deep-copied"
    return Listing(spec.id, runs, restorable, missing)


def batched(spec: EnvSpec) -> Batched | None:
    """Return Trellis's implementation of an environment, or None.

    It is None if there is no implementation or if its package is not installed.
    """
    if spec.id in ("CartPole-v1", lookup.PAPER_CARTPOLE):
        return _cartpole(spec.id)
    if spec.id in GAMES:
        return _game(spec.id)
    if spec.id in lookup.MEMORY_PROBES:
        return _memory_probe(spec.id)
    if spec.id in lookup.WITHOUT_VELOCITY:
        return _without_velocity(spec.id)
    if spec.id.startswith("ALE/") and lookup.installed("ale_py"):
        return _atari(spec)
    if lookup.module_of(spec).startswith(SMALL):
        return _small(spec)
    if lookup.installed("mujoco"):
        return _seeing() if spec.id in lookup.SEEING else _mujoco(spec)
    return None


def _cartpole(env_id: str) -> Batched:
    from trellis.envs.classic import cartpole

    kind = cartpole.CartPole if env_id == "CartPole-v1" else cartpole.PaperCartPole
    options = set(inspect.signature(kind).parameters) - {"num_envs"}
    return Batched(lambda n, workers, nthread, **given: kind(n, **given), options, ARRAYS)


def _game(env_id: str) -> Batched:
    kind = game_class(env_id)
    options = set(inspect.signature(kind).parameters) - {"num_envs"}
    return Batched(lambda n, workers, nthread, **given: kind(n, **given), options, ARRAYS)


def _memory_probe(env_id: str) -> Batched:
    from trellis.envs.classic import memory

    kind = memory.TMaze if env_id == "trellis/TMaze-v0" else memory.Repeat
    options = set(inspect.signature(kind).parameters) - {"num_envs"}
    return Batched(lambda n, workers, nthread, **given: kind(n, **given), options, ARRAYS)


def _without_velocity(env_id: str) -> Batched | None:
    from trellis.envs.without_velocity import HIDDEN, VisibleColumns

    whole, hidden = HIDDEN[env_id]
    ours = batched(gymnasium.spec(whole))
    if ours is None:
        return None

    def make_visible(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        return VisibleColumns(env_id, ours.make(num_envs, workers, nthread, **options), hidden)

    return dataclasses.replace(ours, make=make_visible)


def _small(spec: EnvSpec) -> Batched | None:
    from trellis.envs.small_tasks import find_small_task

    found = find_small_task(spec)
    if found is None:
        return None

    def make_small(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        return found.make(num_envs, **options)

    def has_a_fixed_map(options: dict[str, Any]) -> bool:
        chosen = {**spec.kwargs, **options}
        return chosen.get("map_name", "4x4") is not None or chosen.get("desc") is not None

    return Batched(make_small, found.options, ARRAYS, has_a_fixed_map)


def _atari(spec: EnvSpec) -> Batched:
    from trellis.envs.atari.batch import AtariBatch, AtariGame

    def make_game(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        rom = spec.kwargs["game"]
        return AtariBatch(spec.id, rom, num_envs, workers=workers or nthread, **options)

    rules = {rule.name for rule in dataclasses.fields(AtariGame)} - {"rom"}
    return Batched(make_game, rules | {"actions", "max_episode_steps"}, EMULATORS)


def _seeing() -> Batched:
    def make_robot(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        from trellis.envs.mujoco.seeing import SeeingReacher

        return SeeingReacher(num_envs, nthread=nthread, **options)

    return Batched(make_robot, {"senses", "max_episode_steps"}, PHYSICS)


def _mujoco(spec: EnvSpec) -> Batched | None:
    module = lookup.module_of(spec)
    if not (spec.id in lookup.PAPER_ON_MUJOCO or module.startswith("gymnasium.envs.mujoco")):
        return None
    from trellis.envs.mujoco import paper, v5
    from trellis.envs.mujoco.batch import MujocoBatch

    task = (v5.TASKS | paper.TASKS).get(spec.id)
    if task is None:
        return None

    def make_task(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        return MujocoBatch(spec.id, task, num_envs, nthread=nthread, **options)

    return Batched(make_task, set(task.defaults), PHYSICS)
