"""Train several seeds at once from Python: `learn_seeds`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.agent_inputs import EnvSource, batch_maker, require_arguments, settings_for
from trellis.config import PolicyConfig, TrainConfig
from trellis.policies.policy import Policy
from trellis.policies.saved import SavedPolicy
from trellis.runs.progress import make_progress
from trellis.runs.run import advance, closing
from trellis.runs.seeds import train_seeds
from trellis.training.seeds import SeedsTrainer


@dataclass(frozen=True)
class SeedResults:
    """Policies and metrics of several seeds that were trained at once."""

    config: TrainConfig
    """Settings of the runs, with the first seed."""
    seeds: tuple[int, ...]
    """Seed of each run, in order."""
    policies: tuple[SavedPolicy, ...]
    """Last policy of each seed, which can act on its own."""
    metrics: tuple[list[dict[str, Any]], ...]
    """Metrics of every iteration of each seed."""

    def curve(self, name: str = "episode_return_mean") -> np.ndarray:
        """Return a metric as an array (seed, iteration), with NaN where there is none."""
        return np.array([[row.get(name, np.nan) for row in rows] for rows in self.metrics], float)


def learn_seeds(
    env: EnvSource,
    seeds: int | Sequence[int],
    *,
    total_timesteps: int | None = None,
    preset: str | None = None,
    policy: Policy | PolicyConfig | Mapping[str, Any] | None = None,
    progress_bar: bool = True,
    log_dir: str | Path | None = None,
    **settings: Any,
) -> SeedResults:
    """Train several seeds of one configuration at once, as one compiled program.

    Args:
        env: Id of an environment in JAX, such as "gymnax/CartPole-v1", or a `FunctionalEnv`.
        seeds: The seeds, or their number, from 0 on.
        total_timesteps: Number of steps of each seed. Default: `total_steps` of the settings.
        preset: Name of a preset. Default: the environment's own.
        policy: Your own `Policy`, or changes to the settings of the default policy.
        progress_bar: Whether to show a bar on a terminal, or lines elsewhere.
        log_dir: Folder for a run folder per seed, as `trellis train --seeds` writes it. Default: no
            files and no evaluations.
        **settings: Fields of `TrainConfig`, as for `TRPO`.

    Returns:
        The policies, and the metrics of every iteration.

    Raises:
        ValueError: The environment is not written in JAX, or a setting needs the ordinary trainer.
    """
    require_arguments(env, (), policy)
    if not isinstance(policy, Policy | None):
        settings["policy"], policy = policy, None
    if total_timesteps is not None:
        settings["total_steps"] = total_timesteps
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    config = settings_for(env, preset, settings)
    rows: tuple[list[dict[str, Any]], ...] = tuple([] for _ in chosen)
    trainer = SeedsTrainer(config, chosen, batch_maker(env, config), policy)
    with closing(trainer):

        def keep(_: Any, __: dict[str, Any]) -> None:
            for mine, row in zip(rows, trainer.rows, strict=True):
                mine.append(dict(row))

        if log_dir is not None:
            state = train_seeds(trainer, log_dir, quiet=not progress_bar, callbacks=[keep])
        else:
            with make_progress(config, quiet=not progress_bar) as progress:
                state = advance(
                    trainer,
                    trainer.start(),
                    lambda state: config.is_over(state.iteration, state.steps),
                    [keep, lambda _, metrics: progress.update(metrics)],
                )
        states = getattr(state, "states", ())
        policies = (t.policy_of(s) for t, s in zip(trainer.trainers, states, strict=True))
        return SeedResults(trainer.config, trainer.seeds, tuple(policies), rows)
