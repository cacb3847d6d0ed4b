"""The runs of Section 8.2 as data: planned runs, and the runs in a folder.

A run is one game, recipe and seed. The paper's recipes have 500 iterations with the steps of Table
3. `scale` makes the iterations smaller (fewer and shorter paths; with vine, fewer trunks and branch
states), and their number stays. `steps` ends a run early, and more steps continue it.

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
from trellis.config import SamplingConfig, TrainConfig
from trellis.presets.paper import ATARI_ITERATIONS
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
RECIPES = {
    "paper": "paper/atari-single-path",
    "paper-vine": "paper/atari-vine",
    "modern": "modern/atari",
}
"""Preset of each recipe."""
MODERN = RECIPES["modern"]
PRESETS = tuple(presets.ATARI)
LEAST_PATHS = 8
"""Least number of parallel games of a smaller iteration. They keep two workers busy."""


def settings(game: str, preset: str, steps: int | None = None, scale: float = 1.0) -> TrainConfig:
    """Return the settings of a game's runs; `steps` ends a run early."""
    # The report evaluates the last policy, so training needs no evaluations.
    config = dataclasses.replace(presets.resolve(env_id(game), preset), eval_every=0)
    if preset == MODERN:
        return dataclasses.replace(config, total_steps=steps or config.total_steps)
    sampling = smaller(config.sampling, scale)
    total = ATARI_ITERATIONS * sampling.most_steps
    return dataclasses.replace(
        config,
        sampling=sampling,
        total_steps=min(steps or total, total),
        max_iterations=ATARI_ITERATIONS,  # Vine's iterations may have fewer steps than most.
        checkpoint_every=min(config.checkpoint_every, sampling.most_steps),
    )


def smaller(sampling: SamplingConfig, scale: float) -> SamplingConfig:
    """Return the sampling settings of a smaller iteration, with about scale × the steps.

    Single path has fewer games, and below `LEAST_PATHS` shorter parts of games. Vine has fewer
    trunks of the same length, so that games end, and rollouts for the rest of the steps.
    """
    steps = scale * sampling.most_steps
    if not sampling.is_vine:
        paths = min(sampling.num_envs, max(LEAST_PATHS, round(scale * sampling.num_envs)))
        length = max(1, round(steps / paths))
        return dataclasses.replace(sampling, num_envs=paths, steps_per_env=length)
    vine = sampling.vine
    trunks = max(1, round(scale * vine.trunks))
    left = steps - trunks * vine.trunk_length
    states = max(1, int(left / (vine.actions * vine.rollout_length)))
    return dataclasses.replace(
        sampling, vine=dataclasses.replace(vine, trunks=trunks, states=states)
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
    def scale(self) -> float:
        """Steps per iteration as a part of the preset's, if the sizes are those of a scale."""
        preset, own = self._preset.sampling, self.config.sampling
        part = own.most_steps / preset.most_steps
        found = (round(part, digits) for digits in range(1, 5))
        return next((s for s in found if 0 < s < 1 and own == smaller(preset, s)), 1.0)

    @property
    def differs(self) -> dict[str, Any]:
        """Settings that differ from the preset at this scale, by full name."""
        own, preset = settings_of(self.config), self._preset
        if self.scale != 1:
            sampling = smaller(preset.sampling, self.scale)
            preset = dataclasses.replace(preset, sampling=sampling)
        expected = settings_of(preset)
        return {k: own.get(k) for k in sorted(own | expected) if own.get(k) != expected.get(k)}

    @property
    def _preset(self) -> TrainConfig:
        return presets.resolve(self.config.env, self.config.preset)

    @property
    def plan(self) -> RunPlan:
        """This run as a plan, which can be continued."""
        return RunPlan(self.folder, self.config)


def find_runs(runs: Path, games: Sequence[str]) -> Iterator[FoundRun]:
    """Yield all runs of these games in a folder and its subfolders."""
    by_env = {env_id(game): game for game in games}
    for path in sorted(runs.rglob(CONFIG)):
        folder = path.parent
        config = read_config(folder)
        if config.env in by_env and config.preset in PRESETS:
            name = folder.relative_to(runs).as_posix()
            yield FoundRun(folder, config, name, by_env[config.env])
