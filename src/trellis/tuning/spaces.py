"""Search spaces of `trellis tune`: which settings vary, and in which range.

Every space is widened to include the value of the preset, which the first trial uses. So the best
settings are never worse than the preset, as far as the evaluations of a short training can tell.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trellis.config import TrainConfig
from trellis.config.changes import changed

PARTS = ("step", "estimation", "sampling", "policy")
"""Parts of the settings that have a search space."""


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds."""

    low: float
    """Smallest value of the setting."""
    high: float
    """Largest value of the setting."""
    log: bool = False
    """Whether the logarithm is uniform, instead of the number."""
    whole: bool = False
    """Whether the numbers are whole."""


Space = Range | tuple[Any, ...]
"""A range of numbers, or the values to choose from."""
SPACES: Mapping[str, Space] = {
    "step.max_kl": Range(1e-3, 0.1, log=True),
    "step.damping": Range(1e-3, 0.3, log=True),
    "step.cg_iterations": Range(5, 25, whole=True),
    "estimation.gamma": (0.95, 0.98, 0.99, 0.995, 0.999),
    "estimation.gae_lambda": (0.8, 0.9, 0.95, 0.97, 0.99, 1.0),
    "estimation.critic_learning_rate": Range(1e-4, 1e-2, log=True),
    "estimation.critic_epochs": Range(2, 30, whole=True),
    "sampling.num_envs": (8, 16, 32, 64),
    "sampling.steps_per_env": (32, 64, 128, 256),
    "policy.hidden": ((32,), (64,), (32, 32), (64, 64), (128, 128)),
    "policy.initial_log_std": Range(-1.5, 0.5),
}
"""Search space of each setting, by its full name."""


def names_in(config: TrainConfig, parts: Iterable[str]) -> list[str]:
    """Return the settings of these parts that have a search space and an effect on `config`."""
    chosen, critic = set(parts), config.estimation.critic
    if config.sampling.is_vine:
        chosen.discard("sampling")  # Vine has settings of its own.
    inert = {"estimation.gae_lambda"} if critic == "none" else set[str]()
    if critic != "mlp":
        inert |= {"estimation.critic_learning_rate", "estimation.critic_epochs"}
    return [name for name in SPACES if name.partition(".")[0] in chosen and name not in inert]


def value_of(config: TrainConfig, name: str) -> Any:
    """Return the value of a setting by its full name."""
    part, _, setting = name.partition(".")
    return getattr(getattr(config, part), setting)


def space_of(config: TrainConfig, name: str) -> Space:
    """Return the search space of a setting, widened to include its value in `config`."""
    space, value = SPACES[name], value_of(config, name)
    if isinstance(space, tuple):
        return space if value in space else (*space, value)
    return Range(min(space.low, value), max(space.high, value), space.log, space.whole)


def suggest(trial: Any, config: TrainConfig, parts: Iterable[str]) -> TrainConfig:
    """Return the settings of a trial.

    Args:
        trial: Trial of Optuna, which chooses the values.
        config: Settings that the trial changes.
        parts: Parts of the settings that vary.
    """
    values: dict[str, dict[str, Any]] = {}
    for name in names_in(config, parts):
        space = space_of(config, name)
        if isinstance(space, tuple):
            texts = [text_of(value) for value in space]
            value = space[texts.index(trial.suggest_categorical(name, texts))]
        elif space.whole:
            value = trial.suggest_int(name, int(space.low), int(space.high))
        else:
            value = trial.suggest_float(name, space.low, space.high, log=space.log)
        part, _, setting = name.partition(".")
        values.setdefault(part, {})[setting] = value
    return changed(config, values)


def defaults(config: TrainConfig, parts: Iterable[str]) -> dict[str, Any]:
    """Return the values of the settings themselves, as the first trial gets them."""
    found = {}
    for name in names_in(config, parts):
        value = value_of(config, name)
        found[name] = text_of(value) if isinstance(SPACES[name], tuple) else value
    return found


def text_of(value: Any) -> str:
    """Return a choice as text, which every storage of Optuna can keep."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
