"""Lists the JAX suites and makes their environments by id: `SUITE/NAME`.

The list needs neither JAX nor the suites. A suite is imported when one of its environments is made.
"""

import difflib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trellis.envs.batch import BatchEnv
from trellis.envs.lookup import MissingExtraError, UnknownEnvironmentError, installed

LIGHT = "pip install 'trellis-rl[jax-envs]'"
PHYSICS = "pip install 'trellis-rl[brax]'"
HOME = "trellis.envs.jax"


@dataclass(frozen=True)
class Suite:
    """A package with environments that are written in JAX."""

    module: str
    """Module that it needs."""
    install: str
    """Command that installs it."""
    maker: str
    """Our function that makes an environment from a name and options, as `module:function`."""
    names: tuple[str, ...]
    """Names of its environments that are listed."""


SUITES = {
    "gymnax": Suite(
        "gymnax",
        LIGHT,
        "gymnax_suite:make_gymnax",
        (
            *("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"),
            *("MountainCarContinuous-v0", "Asterix-MinAtar", "Breakout-MinAtar"),
            *("Freeway-MinAtar", "SpaceInvaders-MinAtar", "Catch-bsuite", "DeepSea-bsuite"),
            *("MemoryChain-bsuite", "UmbrellaChain-bsuite", "DiscountingChain-bsuite"),
            *("SimpleBandit-bsuite", "FourRooms-misc", "MetaMaze-misc", "PointRobot-misc"),
            *("BernoulliBandit-misc", "GaussianBandit-misc", "Reacher-misc", "Swimmer-misc"),
            "Pong-misc",
        ),
    ),
    "craftax": Suite(
        "craftax",
        LIGHT,
        "gymnax_suite:make_craftax",
        ("Craftax-Symbolic-v1", "Craftax-Classic-Symbolic-v1"),
    ),
    "jumanji": Suite(
        "jumanji",
        LIGHT,
        "jumanji_suite:make_jumanji",
        (
            *("Game2048-v1", "GraphColoring-v1", "Minesweeper-v0", "RubiksCube-v0"),
            *("RubiksCube-partly-scrambled-v0", "Sudoku-v0", "Sudoku-very-easy-v0", "BinPack-v2"),
            *("FlatPack-v0", "JobShop-v0", "Knapsack-v1", "Tetris-v0", "Cleaner-v0", "CVRP-v1"),
            # Sokoban is left out: it downloads its levels when it is made.
            *("Maze-v0", "Snake-v1", "TSP-v1", "PacMan-v1", "SlidingTilePuzzle-v0"),
        ),
    ),
    "pgx": Suite(
        "pgx",
        LIGHT,
        "grid_suites:make_pgx",
        (
            *("2048", "minatar-asterix", "minatar-breakout", "minatar-freeway"),
            *("minatar-seaquest", "minatar-space_invaders"),
        ),
    ),
    "navix": Suite(
        "navix",
        LIGHT,
        "grid_suites:make_navix",
        tuple(
            f"Navix-{name}-v0"
            for name in (
                *("Empty-5x5", "Empty-6x6", "Empty-8x8", "Empty-16x16", "Empty-Random-5x5"),
                *("Empty-Random-6x6", "Empty-Random-8x8", "Empty-Random-16x16", "DoorKey-5x5"),
                *("DoorKey-6x6", "DoorKey-8x8", "DoorKey-16x16", "DoorKey-Random-5x5"),
                *("DoorKey-Random-6x6", "DoorKey-Random-8x8", "DoorKey-Random-16x16"),
                *("Dynamic-Obstacles-5x5", "Dynamic-Obstacles-6x6", "Dynamic-Obstacles-8x8"),
                *("Dynamic-Obstacles-16x16", "FourRooms", "GoToDoor-5x5", "GoToDoor-6x6"),
                *("GoToDoor-8x8", "KeyCorridorS3R1", "KeyCorridorS3R2", "KeyCorridorS3R3"),
                *("KeyCorridorS4R3", "KeyCorridorS5R3", "KeyCorridorS6R3", "LavaGapS5"),
                *("LavaGapS6", "LavaGapS7", "SimpleCrossingS9N1", "SimpleCrossingS9N2"),
                *("SimpleCrossingS9N3", "SimpleCrossingS11N5", "DistShift1", "DistShift2"),
            )
        ),
    ),
    "xminigrid": Suite(
        "xminigrid",
        LIGHT,
        "grid_suites:make_xminigrid",
        tuple(
            f"MiniGrid-{name}"
            for name in (
                *("BlockedUnlockPickUp", "DoorKey-5x5", "DoorKey-6x6", "DoorKey-8x8"),
                *("DoorKey-16x16", "Empty-5x5", "Empty-6x6", "Empty-8x8", "Empty-16x16"),
                *("EmptyRandom-5x5", "EmptyRandom-6x6", "EmptyRandom-8x8", "EmptyRandom-16x16"),
                *("FourRooms", "LockedRoom", "MemoryS8", "MemoryS16", "MemoryS32", "MemoryS64"),
                *("MemoryS128", "Playground", "Unlock", "UnlockPickUp"),
            )
        ),
    ),
    "brax": Suite(
        "brax",
        PHYSICS,
        "brax_suite:make_brax",
        (
            *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup"),
            *("inverted_pendulum", "inverted_double_pendulum", "pusher", "reacher", "swimmer"),
            "walker2d",
        ),
    ),
    "playground": Suite(
        "mujoco_playground",
        PHYSICS,
        "brax_suite:make_playground",
        (
            *("AcrobotSwingup", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse"),
            *("CartpoleSwingup", "CartpoleSwingupSparse", "CheetahRun", "FingerSpin"),
            *("FingerTurnEasy", "FingerTurnHard", "FishSwim", "HopperHop", "HopperStand"),
            *("HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup", "PointMass"),
            *("ReacherEasy", "ReacherHard", "SwimmerSwimmer6", "WalkerRun", "WalkerStand"),
            "WalkerWalk",
        ),
    ),
    "phys2d": Suite(
        "flax",
        LIGHT,
        "gymnasium_suite:make_phys2d",
        ("CartPole-v0", "CartPole-v1", "Pendulum-v0"),
    ),
}
"""Suites by the first part of their ids."""


def suite_of(env_id: str) -> Suite | None:
    """Return the suite of an id; None if it is not an id of a JAX suite."""
    prefix, slash, _ = env_id.partition("/")
    return SUITES.get(prefix) if slash else None


def listed() -> Iterator[tuple[str, str]]:
    """Yield the id of every listed environment, and the install command if it is missing."""
    for prefix, suite in SUITES.items():
        missing = "" if installed(suite.module) else suite.install
        for name in suite.names:
            yield f"{prefix}/{name}", missing


def make_suite_batch(env_id: str, num_envs: int, **options: Any) -> BatchEnv:
    """Return a batch of an environment of a JAX suite.

    Args:
        env_id: Id such as `gymnax/CartPole-v1`.
        num_envs: Size of the batch.
        **options: `max_episode_steps`, and options of the environment itself.

    Raises:
        MissingExtraError: The suite is not installed.
        UnknownEnvironmentError: The suite has no environment of this name.
    """
    if options.get("render_mode") in (None, "rgb_array"):
        options.pop("render_mode", None)
    limit = options.pop("max_episode_steps", "default")
    env = suite_env(env_id, **options)
    return make_functional_batch(env, num_envs, env_id=env_id, max_episode_steps=limit)


def suite_env(env_id: str, **options: Any) -> Any:
    """Return the `FunctionalEnv` of an id of a JAX suite; see `make_suite_batch` for its errors."""
    suite, name = suite_of(env_id), env_id.partition("/")[2]
    assert suite is not None
    if not installed(suite.module):
        raise MissingExtraError(
            f"{env_id} needs the package {suite.module}, which is not installed."
            f" Run: {suite.install}"
        )
    request = env_id, repr(sorted(options.items()))
    if request not in _made:
        try:
            _made[request] = _maker(suite)(name, **options)
        except KeyError as error:
            if error.args[:1] != (name,):
                raise
            raise _unknown(env_id, error.args[1]) from None
    return _made[request]


def make_functional_batch(env: Any, num_envs: int, **options: Any) -> BatchEnv:
    """Return a batch of a `FunctionalEnv`, or of a class of them; see `JaxBatch` for the options.

    A class gets all options but `max_episode_steps` when it is called.
    """
    from trellis.envs.jax.batch import JaxBatch

    if isinstance(env, type):
        limit = {key: options.pop(key) for key in ("max_episode_steps",) if key in options}
        return JaxBatch(env(**options), num_envs, **limit)
    return JaxBatch(env, num_envs, **options)


def is_functional(env: Any) -> bool:
    """Return whether this is a `FunctionalEnv` or a class of them; it does not import JAX."""
    module = sys.modules.get(f"{HOME}.functional")
    if module is None:  # Nobody can have made one.
        return False
    kind = env if isinstance(env, type) else type(env)
    return issubclass(kind, module.FunctionalEnv)


_made: dict[tuple[str, str], Any] = {}
"""Environments by id and options. They have no state, so batches share them and their programs."""


def _maker(suite: Suite) -> Any:
    module, _, function = suite.maker.partition(":")
    return getattr(importlib.import_module(f"{HOME}.{module}"), function)


def _unknown(env_id: str, known: Any) -> UnknownEnvironmentError:
    prefix, _, name = env_id.partition("/")
    names = sorted({*map(str, known), *SUITES[prefix].names})
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(f'{prefix}/{one}' for one in near)}?" if near else ""
    return UnknownEnvironmentError(
        f"{prefix} has no environment {name!r}.{hint} `trellis envs` lists all ids."
    )
