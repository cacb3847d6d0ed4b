"""Looks up the registration of an environment id, with errors that say what to do."""

import difflib
import importlib
import importlib.util

import gymnasium
from gymnasium.envs.registration import EnvSpec, parse_env_id

from trellis.envs.errors import describe

PAPER_ON_MUJOCO = ("trellis/PaperSwimmer-v0", "trellis/PaperHopper-v0", "trellis/PaperWalker-v0")
PAPER_CARTPOLE = "trellis/PaperCartPole-v0"
SEEING = ("trellis/SeeingReacher-v0",)
"""Ids of robots with a camera."""
WITHOUT_VELOCITY_ON_MUJOCO = (
    "trellis/HopperNoVelocity-v0",
    "trellis/Walker2dNoVelocity-v0",
    "trellis/HalfCheetahNoVelocity-v0",
)
WITHOUT_VELOCITY = (
    "trellis/CartPoleNoVelocity-v0",
    "trellis/PendulumNoVelocity-v0",
    *WITHOUT_VELOCITY_ON_MUJOCO,
)
MEMORY_PROBES = ("trellis/TMaze-v0", "trellis/Repeat-v0")
MUJOCO = ("mujoco", "pip install 'trellis-rl[mujoco]'")
ATARI = ("ale_py", "pip install 'trellis-rl[atari]'")
# The package that an environment needs and how to install it, by the environment's module.
NEEDS = {
    "gymnasium.envs.mujoco": MUJOCO,
    "gymnasium.envs.box2d": ("Box2D", "pip install 'gymnasium[box2d]'"),
    "gymnasium.envs.phys2d": ("flax", "pip install flax"),
    "gymnasium.envs.tabular": ("flax", "pip install flax"),
    "ale_py": ATARI,
}


class UnknownEnvironmentError(ValueError):
    """No environment has this id; the message suggests similar ones."""


class MissingExtraError(ImportError):
    """The environment needs a package that is not installed; the message says how to install it."""


def find_spec(env_id: str) -> EnvSpec:
    """Return the registration of an environment id.

    Args:
        env_id: An id such as `Hopper-v5`, or `module:id` to import the module that registers it.

    Raises:
        UnknownEnvironmentError: No environment is registered under this id.
        MissingExtraError: The environment needs a package that is not installed.
    """
    module, colon, name = env_id.rpartition(":")
    if colon:
        _import(module, env_id)
    if name not in gymnasium.registry:
        register_atari()
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise _unknown(name)
    if _is_retired(spec):
        raise UnknownEnvironmentError(f"Gymnasium has retired {name}.{_suggestion(name)}")
    command = missing_package(spec)
    if command:
        raise MissingExtraError(f"{name} needs a package that is not installed. Run: {command}")
    return spec


def listed() -> list[EnvSpec]:
    """Return all registrations, without retired ids and without ALE's older ids."""
    register_atari()
    specs = [spec for spec in gymnasium.registry.values() if not _is_retired(spec)]
    # ALE's games are listed by their ALE/ ids only. The older ids are the same games with other
    # rules.
    return [s for s in specs if s.id.startswith("ALE/") or not module_of(s).startswith("ale_py")]


def register_atari() -> None:
    """Register the games of ale-py with Gymnasium, if ale-py is installed."""
    if installed("ale_py"):
        gymnasium.register_envs(importlib.import_module("ale_py"))


def installed(module: str) -> bool:
    """Return whether a module can be imported."""
    return importlib.util.find_spec(module) is not None


def missing_package(spec: EnvSpec) -> str:
    """Return the command that installs what an environment needs, or "" if nothing is missing."""
    ours = (*PAPER_ON_MUJOCO, *SEEING, *WITHOUT_VELOCITY_ON_MUJOCO)
    needed = [MUJOCO] if spec.id in ours else []
    needed += [need for prefix, need in NEEDS.items() if module_of(spec).startswith(prefix)]
    return next((command for module, command in needed if not installed(module)), "")


def module_of(spec: EnvSpec) -> str:
    """Return the module of an environment's class, from its registration."""
    entry = spec.entry_point or spec.vector_entry_point
    return entry if isinstance(entry, str) else getattr(entry, "__module__", "")


def _import(module: str, env_id: str) -> None:
    """Import the module that registers an id; raise a clear error if it does not exist."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UnknownEnvironmentError(
            f"the module {error.name} of {env_id} was not found: install its package, run the"
            " command in the folder that contains it, or add that folder to PYTHONPATH"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a module must not end the program.
        raise ImportError(
            f"{env_id}: importing the module {module} raised {describe(error)}"
        ) from error


def _is_retired(spec: EnvSpec) -> bool:
    """Return whether an id of Gymnasium is retired; its entry point then only raises an error."""
    return getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _unknown(name: str) -> Exception:
    if (name.startswith("ALE/") or "NoFrameskip" in name) and not installed("ale_py"):
        return MissingExtraError(f"{name} is an Atari game and needs ale-py. Run: {ATARI[1]}")
    return UnknownEnvironmentError(
        f"there is no environment {name!r}.{_suggestion(name)} `trellis envs` lists all ids. For an"
        " environment of another package, use 'package:id' or import the package first."
    )


def _suggestion(name: str) -> str:
    ids = [spec.id for spec in gymnasium.registry.values() if not _is_retired(spec)]
    scored = sorted(
        (-_likeness(name, env_id), -(parse_env_id(env_id)[2] or 0), env_id) for env_id in ids
    )
    near = [env_id for score, _, env_id in scored[:3] if score < -0.6]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _likeness(name: str, env_id: str) -> float:
    """Return the similarity of two ids: the larger of whole and without namespace and version."""

    def base(text: str) -> str:
        return text.rpartition("/")[2].partition("-v")[0]

    pairs = ((name.lower(), env_id.lower()), (base(name).lower(), base(env_id).lower()))
    return max(difflib.SequenceMatcher(None, a, b).ratio() for a, b in pairs)
