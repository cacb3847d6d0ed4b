"""Which environments there are, which of them are batched, and `make`, which creates them all.

Some environments have a batched implementation of our own. All others, and options that ours do not
have, use Gymnasium's, one object for each environment of the batch. Simulators are imported when
they are needed; the list reads Gymnasium's registry and creates no environment.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from trellis.envs import lookup
from trellis.envs.batch import BatchEnv, Restorability

ARRAYS, PHYSICS, EMULATORS = "batched arrays", "batched physics", "batched emulators"
OBJECTS = "python objects"
# By the module of an environment: whether it can be restored.
RESTORABLE = {
    "trellis.envs": Restorability.SERIALIZABLE.value,
    "gymnasium.envs.mujoco": Restorability.SERIALIZABLE.value,
    "gymnasium.envs.classic_control": Restorability.MEMORY.value,
    "gymnasium.envs.toy_text": Restorability.MEMORY.value,
    "gymnasium.envs.box2d": "not restorable: Box2D's world cannot be copied",
}


@dataclasses.dataclass(frozen=True)
class Listing:
    """An environment in the list of those that can be trained."""

    env_id: str
    """The id of the environment."""
    runs: str
    """How it runs: batched physics, arrays or emulators, or Python objects."""
    restorable: str
    """Whether it can be restored, which vine needs."""
    missing: str
    """Command that installs what is missing; empty if it can be used now."""


@dataclasses.dataclass(frozen=True)
class Batched:
    """A batched implementation of our own."""

    make: Callable[..., BatchEnv]
    """Creates a batch from `num_envs`, `workers`, `nthread` and options."""
    options: set[str]
    """Names of the options that it has."""
    runs: str
    """How it runs, for the list."""


def make(
    env: str | Callable[..., gymnasium.Env],
    num_envs: int,
    *,
    workers: int = 0,
    nthread: int = 0,
    **kwargs: Any,
) -> BatchEnv:
    """Return the fastest batch that there is of an environment.

    Args:
        env: An id (`trellis envs` lists them), or a callable that returns a new `gymnasium.Env`.
        num_envs: Size of the batch.
        workers: Worker processes, for environments without a batched implementation; 0 for none.
            Atari games have so many for each of their two lanes, or `nthread` if that is given.
        nthread: Threads for batched physics; 0 for all cores.
        **kwargs: Options of the environment. If ours does not have one of them, Gymnasium's own is
            used. Environments without a batched implementation also have
            `worker_timeout_seconds`, see `trellis.envs.gym.make.make_gym`.

    Raises:
        UnknownEnvironmentError: There is no such id.
        MissingExtraError: The environment needs a package that is not installed.
    """
    if isinstance(env, str):
        spec = lookup.find_spec(env)
        ours = batched(spec)
        if ours is not None:
            options = dict(kwargs)
            # Ours can always render pictures.
            if options.get("render_mode") in (None, "rgb_array"):
                options.pop("render_mode", None)
            if set(options) <= ours.options or spec.id.startswith("trellis/"):
                return ours.make(num_envs, workers, nthread, **options)
    from trellis.envs.gym.make import make_gym

    return make_gym(env, num_envs, workers=workers, **kwargs)


def list_environments() -> list[Listing]:
    """Return what can be trained: batched environments first, then games, then all others."""
    rank = {ARRAYS: 0, PHYSICS: 0, EMULATORS: 1, OBJECTS: 2}
    rows = [_listing(spec) for spec in lookup.listed()]
    return sorted(rows, key=lambda row: (rank[row.runs], row.env_id))


def _listing(spec: EnvSpec) -> Listing:
    ours, module, missing = batched(spec), lookup.module_of(spec), lookup.missing_package(spec)
    if ours is not None:
        return Listing(spec.id, ours.runs, Restorability.SERIALIZABLE.value, missing)
    runs = PHYSICS if spec.id in lookup.PAPER_ON_MUJOCO else OBJECTS
    known = [text for prefix, text in RESTORABLE.items() if module.startswith(prefix)]
    restorable = known[0] if known else f"{Restorability.MEMORY.value}, if it can be deep-copied"
    return Listing(spec.id, runs, restorable, missing)


def batched(spec: EnvSpec) -> Batched | None:
    """Return our implementation of an environment, if there is one and its package is installed."""
    if spec.id in ("CartPole-v1", lookup.PAPER_CARTPOLE):
        return _cartpole(spec.id)
    if spec.id.startswith("ALE/") and lookup.installed("ale_py"):
        return _atari(spec)
    if lookup.installed("mujoco"):
        return _mujoco(spec)
    return None


def _cartpole(env_id: str) -> Batched:
    from trellis.envs.classic import cartpole

    kind = cartpole.CartPole if env_id == "CartPole-v1" else cartpole.PaperCartPole
    options = set(inspect.signature(kind).parameters) - {"num_envs"}
    return Batched(lambda n, workers, nthread, **given: kind(n, **given), options, ARRAYS)


def _atari(spec: EnvSpec) -> Batched:
    from trellis.envs.atari.batch import AtariBatch, AtariGame

    def make_game(num_envs: int, workers: int, nthread: int, **options: Any) -> BatchEnv:
        rom = spec.kwargs["game"]
        return AtariBatch(spec.id, rom, num_envs, workers=workers or nthread, **options)

    rules = {rule.name for rule in dataclasses.fields(AtariGame)} - {"rom"}
    return Batched(make_game, rules | {"actions", "max_episode_steps"}, EMULATORS)


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
