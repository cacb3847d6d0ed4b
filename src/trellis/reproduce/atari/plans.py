"""The runs of Section 8.2 as data: planned runs, and the runs in a folder.

A run is one game, preset and seed. The paper's presets have 500 iterations with the steps of Table
3. `scale` makes the iterations smaller (fewer paths; with vine, fewer trunks and branch states),
and their number stays. `steps` ends a run early, and more steps continue it.

A report uses every run that it finds, finished or not. The settings identify a run, not the name of
its folder.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis import presets
from trellis.analysis.logged_run import LoggedRun, settings_of
from trellis.config import TrainConfig
from trellis.presets.paper import ATARI_ITERATIONS
from trellis.reproduce.comparison.plans import scaled
from trellis.reproduce.run_plan import RunPlan
from trellis.runs.folder import CONFIG, locked, read_config, require_same_run, write_config

GAMES = {
    "BeamRider": "Beam Rider",
    "Breakout": "Breakout",
    "Enduro": "Enduro",
    "Pong": "Pong",
    "Qbert": "Q*bert",
    "Seaquest": "Seaquest",
    "SpaceInvaders": "Space Invaders",
}
"""The games of Table 1 in its order: name in ALE's ids, and name in the paper."""
MODERN = "modern/atari"
PRESETS = tuple(presets.ATARI)


def settings(game: str, preset: str, steps: int | None = None, scale: float = 1.0) -> TrainConfig:
    """Return the settings of a game's runs; `steps` ends a run early."""
    # The report evaluates the last policy, so training needs no evaluations.
    config = dataclasses.replace(presets.resolve(env_id(game), preset), eval_every=0)
    if preset == MODERN:
        return dataclasses.replace(config, total_steps=steps or config.total_steps)
    sampling = scaled(config.sampling, scale)
    total = ATARI_ITERATIONS * sampling.most_steps
    return dataclasses.replace(
        config,
        sampling=sampling,
        total_steps=min(steps or total, total),
        max_iterations=ATARI_ITERATIONS,  # Vine's iterations may have fewer steps than most.
    )


def env_id(game: str) -> str:
    """Return the id of a game's environment."""
    return f"ALE/{game}-v5"


def extend(plan: RunPlan) -> None:
    """Extend a run that was planned with fewer steps to the steps of the plan."""
    if not plan.has_started:
        return
    wanted, found = plan.config, read_config(plan.folder)
    require_same_run(plan.folder, wanted)
    limits = {"total_steps": wanted.total_steps, "max_iterations": wanted.max_iterations}
    changed = dataclasses.replace(found, **limits)
    if changed != found and found.total_steps <= wanted.total_steps:
        with locked(plan.folder):
            write_config(plan.folder, changed)


@dataclass(frozen=True)
class FoundRun(LoggedRun):
    """A run of one of the games with one of the presets."""

    name: str
    """Path of the run's folder, relative to the folder of all runs."""
    game: str

    @property
    def identity(self) -> tuple[Any, ...]:
        """Game, preset, changed settings and seed, which no two runs of a report may share."""
        return self.game, self.config.preset, self.differs, self.config.seed

    @property
    def differs(self) -> dict[str, Any]:
        """Settings that differ from the preset, by full name."""
        own = settings_of(self.config)
        preset = settings_of(presets.resolve(self.config.env, self.config.preset))
        return {k: own.get(k) for k in sorted(own | preset) if own.get(k) != preset.get(k)}


def find_runs(runs: Path, games: Sequence[str]) -> Iterator[FoundRun]:
    """Yield all runs of these games in a folder and its subfolders."""
    by_env = {env_id(game): game for game in games}
    for path in sorted(runs.rglob(CONFIG)):
        folder = path.parent
        config = read_config(folder)
        if config.env in by_env and config.preset in PRESETS:
            name = folder.relative_to(runs).as_posix()
            yield FoundRun(folder, config, name, by_env[config.env])
