"""Which environments there are, which of them are fast, and the one door to them all: `make`.

Ours are batches from the ground up; what they do not know, Gymnasium's own do, one object per row.
Nothing is imported before it is needed: the list reads Gymnasium's registry and makes no
environment.
"""

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, parse_env_id

from trellis.envs.batch import BatchEnv, Restorability

MUJOCO = ("mujoco", "pip install 'trellis-rl[mujoco]'")
ATARI = ("ale_py", "pip install 'trellis-rl[atari]'")
# By the module that an environment's class is in: what it needs, and how to get it.
NEEDS = {
    "gymnasium.envs.mujoco": MUJOCO,
    "gymnasium.envs.box2d": ("Box2D", "pip install 'gymnasium[box2d]'"),
    "gymnasium.envs.phys2d": ("flax", "pip install flax"),
    "gymnasium.envs.tabular": ("flax", "pip install flax"),
    "ale_py": ATARI,
}
PAPER_ON_MUJOCO = ("trellis/PaperSwimmer-v0", "trellis/PaperHopper-v0", "trellis/PaperWalker-v0")
ATARI_RUNS = "batched emulators"
# Every MuJoCo task has these besides its own.
MUJOCO_OPTIONS = {"xml_file", "frame_skip", "max_episode_steps"}
IN_MEMORY = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


class UnknownEnvironmentError(ValueError):
    """No environment has this id; the message has near ones."""


class MissingExtraError(ImportError):
    """The environment is known, what it needs is missing; the message says how to install it."""


@dataclass(frozen=True)
class Listing:
    """A row of the list: what can be trained here."""

    env_id: str
    runs: str
    """How: batched physics, batched arrays, or Python objects."""
    restorable: str
    """Whether vine can be used on it."""
    missing: str
    """Empty where it can be used now, else the line that installs what it needs."""


@dataclass(frozen=True)
class FastVersion:
    """A batch of our own: how to make it, and the options that it knows."""

    make: Callable[..., BatchEnv]
    options: set[str]
    runs: str


def make(
    env: str | Callable[..., gymnasium.Env],
    num_envs: int,
    *,
    workers: int = 0,
    nthread: int = 0,
    **kwargs: Any,
) -> BatchEnv:
    """The fastest batch that there is of this environment.

    Args:
        env: an id (`trellis envs` lists them) or a callable that returns a new `gymnasium.Env`.
        num_envs: rows of the batch.
        workers: processes for an environment that has no batched version; 0 for none. Atari's
            emulators have so many for each of their two lanes, or as many as `nthread` says.
        nthread: threads for batched physics; 0 for all cores.
        **kwargs: for the environment. What our version does not know goes to Gymnasium's own, with
            `vector` and `worker_timeout_seconds` of `trellis.envs.gym.make.make_gym`.
    """
    if isinstance(env, str):
        spec = find(env)
        fast = fast_version(spec.id)
        if fast is not None:
            # Ours can always draw themselves.
            pictures = kwargs.get("render_mode") in (None, "rgb_array")
            options = {k: v for k, v in kwargs.items() if k != "render_mode" or not pictures}
            if set(options) <= fast.options or spec.id.startswith("trellis/"):
                threads = {"nthread": nthread} if fast.runs == "batched physics" else {}
                if fast.runs == ATARI_RUNS:
                    threads = {"workers": workers or nthread}
                return fast.make(num_envs, **threads, **options)
    from trellis.envs.gym.make import make_gym

    return make_gym(env, num_envs, workers=workers, **kwargs)


def find(env_id: str) -> EnvSpec:
    """The description of an id, or an error that says what to type or to install instead."""
    module, colon, name = env_id.rpartition(":")
    if colon:
        _import(module, env_id)
    if name not in gymnasium.registry:
        _register_atari()
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise _unknown(name)
    if _retired(spec):
        raise UnknownEnvironmentError(f"{name} was retired by Gymnasium.{_suggestion(name)}")
    missing = _missing(spec)
    if missing:
        raise MissingExtraError(f"{name} needs a package that is not installed: {missing}")
    return spec


def _import(module: str, env_id: str) -> None:
    """What registers the id; a module that is not there is told from one that fails."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UnknownEnvironmentError(
            f"there is no module {error.name} for {env_id}: install its package, or run this in the"
            f" folder that it is in"
        ) from None


def fast_version(env_id: str) -> FastVersion | None:
    """Our batch of this environment, where there is one and what it needs is installed."""
    if env_id in ("CartPole-v1", "trellis/PaperCartPole-v0"):
        from trellis.envs.classic import cartpole

        kind = cartpole.CartPole if env_id == "CartPole-v1" else cartpole.PaperCartPole
        parameters = set(inspect.signature(kind).parameters) - {"num_envs"}
        return FastVersion(kind, parameters, "batched arrays")
    if env_id.startswith("ALE/") and _installed("ale_py"):
        return _atari_version(env_id)
    task = _mujoco_task(env_id)
    if task is None:
        return None
    from trellis.envs.mujoco.batch import MujocoBatch

    def make_task(num_envs: int, **options: Any) -> BatchEnv:
        return MujocoBatch(env_id, task, num_envs, **options)

    return FastVersion(make_task, MUJOCO_OPTIONS | set(task.options), "batched physics")


def list_environments() -> list[Listing]:
    """What can be trained here: the fast ones first, each kind by name."""
    _register_atari()
    specs = [spec for spec in gymnasium.registry.values() if not _retired(spec)]
    # ALE's games by their ALE ids alone: the older ids are the same games by other rules.
    specs = [spec for spec in specs if spec.id.startswith("ALE/") or not _is_atari(spec)]
    rows = [_listing(spec) for spec in specs]

    def order(row: Listing) -> tuple[int, str]:
        return 1 if row.runs == ATARI_RUNS else 0 if row.runs.startswith(
            "batched"
        ) else 2, row.env_id

    return sorted(rows, key=order)


def _register_atari() -> None:
    if _installed("ale_py"):
        gymnasium.register_envs(importlib.import_module("ale_py"))


def _atari_version(env_id: str) -> FastVersion:
    rom = gymnasium.spec(env_id).kwargs["game"]

    def make_game(num_envs: int, **options: Any) -> BatchEnv:
        from trellis.envs.atari.batch import AtariBatch

        return AtariBatch(env_id, rom, num_envs, **options)

    from trellis.envs.atari.screens import AtariGame

    rules = {rule.name for rule in fields(AtariGame)} - {"rom"}
    return FastVersion(make_game, rules | {"actions", "max_episode_steps"}, ATARI_RUNS)


def _mujoco_task(env_id: str) -> Any:
    if not _installed("mujoco"):
        return None
    if env_id in PAPER_ON_MUJOCO:
        from trellis.envs.mujoco import paper

        return paper.TASKS[env_id]
    if not _module_of(gymnasium.registry.get(env_id)).startswith("gymnasium.envs.mujoco"):
        return None
    from trellis.envs.mujoco import v5 as mujoco_v5

    return mujoco_v5.TASKS.get(env_id)


def _listing(spec: EnvSpec) -> Listing:
    fast, module, missing = fast_version(spec.id), _module_of(spec), _missing(spec)
    if fast is not None:
        return Listing(spec.id, fast.runs, Restorability.SERIALIZABLE.value, missing)
    runs = "python objects"
    if spec.vector_entry_point is not None:
        runs += ", or its own vector environment with vector=True"
    if spec.id in PAPER_ON_MUJOCO:
        runs, restorable = "batched physics", Restorability.SERIALIZABLE.value
    elif module.startswith("gymnasium.envs.mujoco"):
        restorable = Restorability.SERIALIZABLE.value
    elif module.startswith(IN_MEMORY):
        restorable = Restorability.MEMORY.value
    elif module.startswith("gymnasium.envs.box2d"):
        restorable = "not restorable: Box2D's world cannot be copied"
    else:
        restorable = f"{Restorability.MEMORY.value}, if it can be deep-copied"
    return Listing(spec.id, runs, restorable, missing)


def _missing(spec: EnvSpec) -> str:
    needed = [MUJOCO] if spec.id in PAPER_ON_MUJOCO else []
    needed += [need for prefix, need in NEEDS.items() if _module_of(spec).startswith(prefix)]
    return next((install for module, install in needed if not _installed(module)), "")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _module_of(spec: EnvSpec | None) -> str:
    entry = None if spec is None else spec.entry_point or spec.vector_entry_point
    return entry if isinstance(entry, str) else getattr(entry, "__module__", "")


def _is_atari(spec: EnvSpec) -> bool:
    return _module_of(spec).startswith("ale_py")


def _retired(spec: EnvSpec) -> bool:
    """Gymnasium keeps old ids whose entry point does nothing but raise."""
    return getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _unknown(name: str) -> Exception:
    if (name.startswith("ALE/") or "NoFrameskip" in name) and not _installed("ale_py"):
        return MissingExtraError(f"{name} is an Atari game, which needs ale-py: {ATARI[1]}")
    return UnknownEnvironmentError(
        f"there is no environment {name!r}.{_suggestion(name)} `trellis envs` lists all; those of"
        " another package are found as 'package:id' or after importing it."
    )


def _suggestion(name: str) -> str:
    ids = [spec.id for spec in gymnasium.registry.values() if not _retired(spec)]
    scored = sorted((-_likeness(name, env_id), -_version(env_id), env_id) for env_id in ids)
    near = [env_id for score, _, env_id in scored[:3] if score < -0.6]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _likeness(name: str, env_id: str) -> float:
    """How near two ids are, by the whole or by the name without namespace and version."""

    def base(text: str) -> str:
        return text.rpartition("/")[2].partition("-v")[0]

    pairs = ((name.lower(), env_id.lower()), (base(name).lower(), base(env_id).lower()))
    return max(difflib.SequenceMatcher(None, a, b).ratio() for a, b in pairs)


def _version(env_id: str) -> int:
    return parse_env_id(env_id)[2] or 0
