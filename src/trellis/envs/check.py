"""Checks whether an environment can be trained: `check_env`.

The checks are those of Gymnasium's own checker (spaces, seeds, what `reset` and `step` return), and
what Trellis needs besides: spaces that a policy supports, episodes that repeat from their seed,
snapshots that restore exactly, and an end to every episode.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from trellis.actions import ActionKind, action_kind, action_width
from trellis.envs import lookup
from trellis.envs.batch import BatchEnv, Restorability
from trellis.envs.catalog import make
from trellis.envs.errors import describe
from trellis.envs.jax.suites import is_functional, suite_env, suite_of
from trellis.envs.sources import require_source
from trellis.envs.values import leaves
from trellis.masks import MASK_KEY, make_legal, mask_size
from trellis.spaces import observation_encoder

if TYPE_CHECKING:
    from trellis.envs.jax.functional import FunctionalEnv

TRIAL_STEPS = 200
"""Steps with random actions, to see whether an episode ends and how fast the environment is."""
NO_MATTER = (
    "alternative render modes",
    "This is probably too",
    "symmetric and normalized space",
)
"""Words of Gymnasium's warnings that do not matter: Trellis normalizes observations and actions."""
CheckLevel = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class EnvCheck:
    """One line of the report of `check_env`."""

    level: CheckLevel
    """Result: ok, warning (training works, with a limit) or error (training fails)."""
    name: str
    """What was checked."""
    detail: str
    """What was found, and what to do about it."""

    def __str__(self) -> str:
        return f"{self.level:<8} {self.name:<20} {self.detail}"


@dataclass(frozen=True)
class EnvReport:
    """Result of `check_env`. It is true if the environment can be trained."""

    env_id: str
    """Id of the environment, or the name of its class."""
    checks: tuple[EnvCheck, ...]
    """All checks, in the order in which they were made."""

    @property
    def ok(self) -> bool:
        """Whether no check found an error."""
        return not self.errors

    @property
    def errors(self) -> tuple[EnvCheck, ...]:
        """Checks that found an error: the environment cannot be trained."""
        return tuple(check for check in self.checks if check.level == "error")

    @property
    def warnings(self) -> tuple[EnvCheck, ...]:
        """Checks that found a limit: the environment can be trained."""
        return tuple(check for check in self.checks if check.level == "warning")

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = "can be trained" if self.ok else "cannot be trained yet"
        return "\n".join([*map(str, self.checks), f"{self.env_id} {verdict}."])


def check_env(
    env: "str | Callable[..., gymnasium.Env] | gymnasium.Env | FunctionalEnv",
    *,
    verbose: bool = True,
) -> EnvReport:
    """Check whether an environment can be trained, and what limits it has.

    Args:
        env: An id, a callable that returns a new `gymnasium.Env`, a `FunctionalEnv`, or an
            environment. An environment that you pass is stepped and reset, but not closed.
        verbose: Whether to print the report.

    Returns:
        The report. It is true if the environment can be trained.

    Example:
        >>> report = check_env("CartPole-v1", verbose=False)
        >>> report.ok, len(report.errors)
        (True, 0)
    """
    is_object = isinstance(env, gymnasium.Env)
    if not is_object:
        require_source(env, "check_env({})")
    source: Any = (lambda: env) if is_object else env
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    if is_object:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    in_jax = is_functional(env) or (isinstance(env, str) and suite_of(env) is not None)
    checks = _jax_checks(source) if in_jax else _checks(source, is_object=is_object)
    report = EnvReport(str(name), tuple(checks))
    if verbose:
        print(report)
    return report


def _checks(source: Any, *, is_object: bool) -> Iterator[EnvCheck]:
    """Yield the checks, up to the first one that makes the others impossible."""
    try:
        env = _make(source)
    except Exception as error:
        yield EnvCheck("error", "making it", describe(error))
        return
    if not isinstance(env, gymnasium.Env):
        detail = f"the callable must return a gymnasium.Env, got {type(env).__name__}"
        yield EnvCheck("error", "making it", detail)
        return
    with contextlib.nullcontext() if is_object else contextlib.closing(env):
        yield EnvCheck("ok", "making it", _summary(env))
        supported = [*_space_checks(env)]
        yield from supported
        yield _gymnasium_check(env)
    if any(check.level == "error" for check in supported):
        return
    try:
        batch = make(source, 1)
    except Exception as error:
        yield EnvCheck("error", "running it", describe(error))
        return
    with contextlib.nullcontext() if is_object else contextlib.closing(batch):
        yield from _batch_checks(batch)


def _jax_checks(source: Any) -> Iterator[EnvCheck]:
    """Yield the checks of an environment that is written in JAX."""
    try:
        if isinstance(source, str):
            env: Any = suite_env(source)
        else:
            env = source() if isinstance(source, type) else source
    except Exception as error:
        yield EnvCheck("error", "making it", describe(error))
        return
    yield EnvCheck("ok", "making it", f"{type(env).__name__}, functions in JAX")
    from trellis.envs.jax.check import check_functions

    found = [*_space_checks(env)]
    if not any(check.level == "error" for check in found):
        for name, problem in check_functions(env):
            detail = problem or "JAX can compile it"
            found.append(EnvCheck("error" if problem else "ok", name, detail))
    yield from found
    if any(check.level == "error" for check in found):
        return
    yield from _batch_checks(make(source if isinstance(source, str) else env, 1))


def _make(source: Any) -> gymnasium.Env:
    if not isinstance(source, str):
        return source()
    lookup.find_spec(source)
    return gymnasium.make(source, disable_env_checker=True)


def _summary(env: gymnasium.Env) -> str:
    spec = env.spec
    return f"{type(env.unwrapped).__name__}" + (f", registered as {spec.id}" if spec else "")


def _space_checks(env: Any) -> Iterator[EnvCheck]:
    """Check that a policy supports both spaces."""
    for name, read in (("observation_space", observation_encoder), ("action_space", action_kind)):
        space = getattr(env, name, None)
        try:
            if not isinstance(space, gymnasium.Space):
                raise ValueError(f"{name} must be a gymnasium.Space, got {type(space).__name__}")
            read(space)
        except ValueError as error:
            yield EnvCheck("error", name, str(error))
            continue
        yield EnvCheck("ok", name, str(space))
        if isinstance(space, gymnasium.spaces.Box) and name == "action_space":
            yield _bounds_check(space)


def _bounds_check(space: gymnasium.spaces.Box) -> EnvCheck:
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return EnvCheck(
            "warning",
            "action bounds",
            "actions have no finite bounds, so they are used as sampled; bounds of about ±1 suit"
            " the initial policy",
        )
    return EnvCheck("ok", "action bounds", "finite; the policy's unit interval maps to them")


def _gymnasium_check(env: gymnasium.Env) -> EnvCheck:
    """Run Gymnasium's own checker, which is stricter than training needs."""
    from gymnasium.utils.env_checker import check_env as check

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            return EnvCheck("warning", "Gymnasium's checker", _plain(describe(error)))
    found = [_plain(str(warning.message)) for warning in caught]
    found = [text for text in found if not any(words in text for words in NO_MATTER)]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return EnvCheck("warning", "Gymnasium's checker", found[0] + more)
    return EnvCheck("ok", "Gymnasium's checker", "no complaints")


def _plain(text: str) -> str:
    """Return a message of Gymnasium without colors and its own prefix, on one line."""
    text = text.replace("\x1b[33m", "").replace("\x1b[0m", "").removeprefix("WARN: ")
    return " ".join(text.split())


def _batch_checks(batch: BatchEnv) -> Iterator[EnvCheck]:
    """Check seeds, snapshots, the end of episodes and the speed, in a batch of one."""
    zero = np.zeros(1, np.int64)
    try:
        first = _play(batch, TRIAL_STEPS)
        again = _play(batch, TRIAL_STEPS)
    except Exception as error:
        yield EnvCheck("error", "stepping it", describe(error))
        return
    if first.rewards == again.rewards and batch.repeatable:
        yield EnvCheck("ok", "seeds", "one seed gives the same episode twice")
    else:
        yield EnvCheck(
            "warning",
            "seeds",
            "one seed gives two different episodes, so runs cannot be repeated; use self.np_random",
        )
    masked = mask_size(batch.observation_space)
    if masked:
        words = f"{masked} choices; illegal actions get probability 0"
        yield EnvCheck("ok", "action masks", words)
    if batch.restorability is Restorability.NONE:
        yield EnvCheck("warning", "snapshots", f"none: {batch.why_not_restorable}")
    else:
        snapshot = batch.snapshot(zero)
        future = _play(batch, 20, again.observation).rewards
        batch.restore(zero, snapshot)
        exact = future == _play(batch, 20, again.observation).rewards
        words = f"{batch.restorability.value}; a restored environment continues " + (
            "exactly" if exact else "differently, so vine does not work"
        )
        yield EnvCheck("ok" if exact else "warning", "snapshots", words)
    limit = batch.max_episode_steps
    if limit is None and not first.ended:
        yield EnvCheck(
            "warning",
            "time limit",
            f"none, and no episode ended within {TRIAL_STEPS} steps; add max_episode_steps",
        )
    else:
        words = f"{limit:,} steps" if limit else f"none, but an episode ended within {TRIAL_STEPS}"
        yield EnvCheck("ok", "time limit", words)
    yield EnvCheck("ok", "speed", f"{first.steps_per_second:,.0f} steps per second, one copy")


@dataclass(frozen=True)
class _Played:
    """What a few steps with random actions gave."""

    rewards: list[tuple[float, bytes]]
    ended: bool
    steps_per_second: float
    observation: Any
    """Observation after the last step."""


def _random_action(rng: np.random.Generator, kind: ActionKind) -> np.ndarray:
    """Return a random action of a batch of one, in the form that a policy samples."""
    if isinstance(kind, list):
        return np.concatenate([_random_action(rng, part) for part in kind], axis=1)
    if isinstance(kind, int):
        return rng.uniform(-1, 1, (1, kind)).astype(np.float32)
    return rng.integers(kind, size=(1, len(kind)))


def _legal(action: np.ndarray, kind: ActionKind, mask: np.ndarray) -> np.ndarray:
    """Return the action with legal choices."""
    made, column, entry = action.copy(), 0, 0
    for part in kind if isinstance(kind, list) else [kind]:
        width = action_width(part)
        if isinstance(part, tuple):
            at, inner = slice(column, column + width), mask[entry : entry + sum(part)]
            choices = action[0, at].astype(np.int64)
            made[0, at] = make_legal(choices, spaces.MultiDiscrete(list(part)), inner)
            entry += sum(part)
        column += width
    return made


def _play(batch: BatchEnv, steps: int, observation: Any = None) -> _Played:
    """Step a batch of one with actions from a fixed seed.

    Args:
        batch: The batch.
        steps: Number of steps.
        observation: Present observation; None starts a new episode.
    """
    zero, space = np.zeros(1, np.int64), batch.action_space
    rng = np.random.default_rng(0)
    kind = action_kind(space)
    masked = mask_size(batch.observation_space)
    if observation is None:
        observation = batch.reset(zero, zero)
    rewards, ended, start = [], False, time.perf_counter()
    for _ in range(steps):
        action = _random_action(rng, kind)
        if masked:
            action = _legal(action, kind, np.ravel(observation[MASK_KEY]))
        step = batch.step(action)
        observation = step.observation
        observed = b"".join(leaf.tobytes() for leaf in leaves(step.observation))
        rewards.append((float(step.reward[0]), observed))
        if step.terminated[0] or step.truncated[0]:
            ended = True
            observation = batch.reset(zero, zero + 1)
    speed = steps / max(time.perf_counter() - start, 1e-9)
    return _Played(rewards, ended, speed, observation)
