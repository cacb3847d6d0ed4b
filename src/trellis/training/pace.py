"""Chooses batch, worker processes and checkpoints of slow environments by their measured speed.

Defaults suit environments that make thousands of steps per second. At 20 steps per second, an
iteration of 32 × 64 steps would take two minutes. `fitted` tries one environment for about a second
and returns settings whose iterations take about ten seconds. Fast environments keep the defaults.
Pictures get a smaller network after the convolutions and fewer passes of the critic, as Atari has
them, because convolutions take most of the time of an update.

The choice becomes plain settings before training starts, so a run stays a function of its settings:
`config.json` holds them, and `trellis resume` does not measure again. Settings that the user chose
are never changed.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from trellis.config import TrainConfig
from trellis.config.changes import changed
from trellis.cores import usable_cores
from trellis.envs.batch import BatchEnv
from trellis.envs.catalog import is_batched
from trellis.envs.guard import Guard
from trellis.envs.gym.batch import GymBatch
from trellis.pictures import picture_layout
from trellis.presets import DEFAULT
from trellis.spaces import Space
from trellis.training.build import make_env

logger = logging.getLogger(__name__)

TRIAL_SECONDS = 1.0
"""Time for which an environment is tried."""
TRIAL_STEPS = 3, 500
"""Least and largest number of steps of a trial."""
ITERATION_SECONDS = 10.0
"""Time that the samples of an iteration may take."""
CHECKPOINT_SECONDS = 600.0
"""Time between two checkpoints."""
LEAST_ENVS = 4
"""Least number of environments that is chosen."""
WORTH_A_PROCESS = 1000.0
"""Speed in steps per second below which a step is long enough to send it to another process."""
SIZES = ("sampling.num_envs", "sampling.steps_per_env")
"""Settings of the batch. An environment is not measured if the user chose all of them."""
PICTURES: dict[str, Any] = {
    "policy.hidden": (64,),
    "estimation.critic_hidden": (64,),
    "estimation.critic_epochs": 2,
    "estimation.critic_minibatch": 256,
}
"""Settings for environments whose observations are pictures."""
ADAPTED = (*SIZES, *PICTURES, "checkpoint_every", "env_options.workers")
"""Settings that may be adapted, by full name."""


class Pace(NamedTuple):
    """Settings that suit the speed of an environment, and what was measured."""

    config: TrainConfig
    """The settings, changed where the environment is slow."""
    steps_per_second: float | None
    """Measured speed of one environment; None if it was not measured."""

    def __str__(self) -> str:
        """Return one line that says what was chosen, or nothing."""
        if self.steps_per_second is None:
            return ""
        sampling = self.config.sampling
        workers = self.config.env_options.get("workers", 0)
        where = f" in {workers} processes" if workers else ""
        epochs = self.config.estimation.critic_epochs
        return (
            f"{self.config.env} makes {self.steps_per_second:,.0f} steps/s: an iteration has"
            f" {sampling.num_envs} × {sampling.steps_per_env} steps{where} and {epochs} critic"
            " epochs. Options override this."
        )


def fitted(
    config: TrainConfig,
    chosen: Collection[str] = (),
    make: Callable[[], BatchEnv] | None = None,
) -> Pace:
    """Return settings that suit the speed of the environment.

    Args:
        config: Settings of a new run.
        chosen: Full names of the settings that the user chose, such as `sampling.num_envs`, or of
            whole groups. They stay.
        make: Function that creates a batch of one environment. Default: from `config.env`.
    """
    free = {name for name in ADAPTED if not _is_chosen(name, chosen)}
    ordinary = config.preset == DEFAULT and not config.step.is_search
    single_path = not config.sampling.is_vine and config.sampling.shards == 1
    if not (free & set(SIZES) and ordinary and single_path):
        return Pace(config, None)
    try:
        if make is None and is_batched(config.env, config.env_options):
            return Pace(config, None)
        speed, space = measure(make or (lambda: make_env(config, 1, workers=0)), config.seed)
    except Exception:  # The trainer makes the environment again and reports what is wrong with it.
        logger.debug("the speed of %s could not be measured", config.env, exc_info=True)
        return Pace(config, None)
    can_move = make is None and "workers" not in config.env_options
    new = choose(config, speed, cores=usable_cores(), can_move=can_move)
    if picture_layout(space, config.policy.pictures):
        new |= PICTURES
    changes = {name: value for name, value in new.items() if name in free}
    adapted = changed(config, _nested(changes))
    return Pace(config, None) if adapted == config else Pace(adapted, speed)


def measure(make: Callable[[], BatchEnv], seed: int) -> tuple[float, Space]:
    """Return the steps per second of one environment, and its observation space.

    Resets between episodes count as parts of their steps.

    The first reset and the first step are not counted, because they may load and compile.

    Args:
        make: Function that creates a batch of one environment.
        seed: Seed of the episodes and of the random actions.
    """
    least, most = TRIAL_STEPS
    with contextlib.closing(make()) as batch:
        if not isinstance(batch, GymBatch):
            return math.inf, batch.observation_space
        env = batch.envs[0]
        with Guard():
            env.action_space.seed(seed)
            env.reset(seed=seed)
            steps, begun, ended = -1, 0.0, False
            while steps < least or (steps < most and time.perf_counter() - begun < TRIAL_SECONDS):
                if ended:
                    env.reset()
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                ended = bool(terminated or truncated)
                steps += 1
                if steps == 0:
                    begun = time.perf_counter()
            speed = steps / max(time.perf_counter() - begun, 1e-9)
        return speed, batch.observation_space


def choose(config: TrainConfig, speed: float, *, cores: int, can_move: bool) -> dict[str, Any]:
    """Return new values of settings, by full name, for an environment of this speed.

    Args:
        config: Settings of the run.
        speed: Steps per second of one environment.
        cores: Number of processors.
        can_move: Whether the environment can run in other processes.
    """
    sampling, most = config.sampling, config.sampling.num_envs
    workers = cores if can_move and cores > 1 and speed < WORTH_A_PROCESS else 0
    total = speed * max(workers, 1)
    if total * ITERATION_SECONDS >= sampling.batch_size:
        return {}
    wanted = math.ceil(total * ITERATION_SECONDS / sampling.steps_per_env)
    step = max(workers, 2)  # Every process gets the same number of environments.
    num_envs = min(most, step * math.ceil(max(wanted, LEAST_ENVS) / step))
    period = (
        num_envs
        * sampling.steps_per_env
        * math.ceil(max(1.0, total * CHECKPOINT_SECONDS / (num_envs * sampling.steps_per_env)))
    )
    new: dict[str, Any] = {
        "sampling.num_envs": num_envs,
        "checkpoint_every": min(config.checkpoint_every, period),
    }
    if workers:
        new["env_options.workers"] = min(workers, num_envs)
    return new


def _is_chosen(name: str, chosen: Collection[str]) -> bool:
    """Return whether the user chose a setting, or the whole group that it belongs to."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in chosen for count in range(1, len(parts) + 1))


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        (nested.setdefault(group, {}) if group else nested)[last] = value
    return nested
