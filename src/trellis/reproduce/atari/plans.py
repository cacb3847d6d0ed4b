"""The runs of Section 8.2: those to be made, as data, and those that are in a folder.

Every run is a `trellis train` of one game, preset and seed. The paper's presets have 500 iterations
of Table 3's steps; `scale` makes the iterations smaller (fewer paths; fewer trunks and branching
states with vine), never fewer. `steps` ends any run early, and with more of them it goes on.

A report takes whatever runs it finds, finished or not, whoever began them: a run is told by its
settings, not by the name of its folder.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis import presets
from trellis.analysis import curves as plots
from trellis.config import TrainConfig, to_json
from trellis.presets.paper import ATARI_ITERATIONS
from trellis.reproduce.comparison.plans import scaled
from trellis.reproduce.sweep import RunPlan
from trellis.runs.folder import CONFIG, locked, read_config, require_same_run, write_config

RUNS = Path("runs/atari")
GAMES = {
    "BeamRider": "Beam Rider",
    "Breakout": "Breakout",
    "Enduro": "Enduro",
    "Pong": "Pong",
    "Qbert": "Q*bert",
    "Seaquest": "Seaquest",
    "SpaceInvaders": "Space Invaders",
}
"""The columns of Table 1: a game in ALE's ids, and as the paper has it."""
MODERN = "modern/atari"
PRESETS = tuple(presets.ATARI)


@dataclass(frozen=True)
class Experiment:
    """What was asked for."""

    games: Sequence[str] = tuple(GAMES)
    preset: str = MODERN
    steps: int | None = None
    """Of a run, at most; as many as the preset has, unless said."""
    scale: float = 1.0
    seeds: int = 1
    """The paper has one run of each game, too."""
    runs: Path = RUNS
    parallel: int = 2

    def __post_init__(self):
        for game in self.games:
            if game not in GAMES:
                raise ValueError(f"there is no game {game!r} here; there are {', '.join(GAMES)}")
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not 0 < self.scale <= 1:
            raise ValueError(f"scale must be in (0, 1], got {self.scale}")
        if self.preset == MODERN and self.scale != 1:
            raise ValueError(
                f"scale is for the iterations of the paper's presets; {MODERN} has --steps alone"
            )

    @property
    def plans(self) -> list[RunPlan]:
        """The runs, game by game."""
        return [self._plan(game, seed) for game in self.games for seed in range(self.seeds)]

    def _plan(self, game: str, seed: int) -> RunPlan:
        name = self.preset.replace("/", "-")
        if self.scale != 1:
            name += f"-scale-{self.scale:g}"
        # Several runs side by side have a core each, a single one has all.
        threads = 1 if self.parallel > 1 else 0
        options = [*self._settings(env_id(game)), "--threads", str(threads)]
        return RunPlan(self.runs / name / f"{game}-{seed}", env_id(game), seed, tuple(options))

    def _settings(self, env: str) -> list[str]:
        config = presets.resolve(env, self.preset)
        # Evaluations would take time, and the report plays the last policy anyway.
        options = ["--preset", self.preset, "--eval-every", "0"]
        if self.preset == MODERN:
            return [*options, "--steps", str(self.steps or config.total_steps)]
        smaller, sampling = scaled(config.sampling, self.scale)
        total = ATARI_ITERATIONS * sampling.most_steps
        limit = str(ATARI_ITERATIONS)  # Vine's iterations may have fewer steps than most.
        steps = str(min(self.steps or total, total))
        return [*options, *smaller, "--steps", steps, "--max-iterations", limit]

    def command(self, out: Path, *, report_only: bool) -> str:
        """What makes these results."""
        words = ["trellis reproduce atari"]
        if tuple(self.games) != tuple(GAMES):
            words.append(f"--games {' '.join(self.games)}")
        words.append(f"--preset {self.preset}")
        if self.runs != RUNS:
            words.append(f"--runs {self.runs}")
        if report_only:
            words.append("--report-only")
        else:
            words += [f"--steps {self.steps}"] if self.steps is not None else []
            words += [f"--scale {self.scale:g}"] if self.scale != 1 else []
            words.append(f"--seeds {self.seeds} --parallel {self.parallel}")
        return f"{' '.join(words)} --out {out}"


def env_id(game: str) -> str:
    """What `trellis train` calls a game."""
    return f"ALE/{game}-v5"


def extend(plan: RunPlan) -> None:
    """Lets a run that was to have fewer steps go on to those of the plan."""
    if not (plan.folder / CONFIG).is_file():
        return
    wanted, found = plan.config, read_config(plan.folder)
    require_same_run(plan.folder, wanted)
    limits = {"total_steps": wanted.total_steps, "max_iterations": wanted.max_iterations}
    changed = dataclasses.replace(found, **limits)
    if changed != found and found.total_steps <= wanted.total_steps:
        with locked(plan.folder):
            write_config(plan.folder, changed)


@dataclass(frozen=True)
class FoundRun:
    """A run of one of the games, by one of the presets."""

    folder: Path
    name: str
    """Of its folder, within that of the runs."""
    game: str
    config: TrainConfig

    @property
    def differs(self) -> dict[str, Any]:
        """The settings that are not the preset's, flat: a smaller iteration, for instance."""
        ours = _settings(self.config)
        presets_own = _settings(presets.resolve(self.config.env, self.config.preset))
        keys = sorted(ours.keys() | presets_own.keys())
        return {k: ours.get(k) for k in keys if ours.get(k) != presets_own.get(k)}


def find_runs(runs: Path, games: Sequence[str]) -> Iterator[FoundRun]:
    """All runs of these games in a folder, however deep."""
    by_env = {env_id(game): game for game in games}
    for path in sorted(runs.rglob(CONFIG)):
        folder = path.parent
        config = read_config(folder)
        if config.env in by_env and config.preset in PRESETS:
            name = folder.relative_to(runs).as_posix()
            yield FoundRun(folder, name, by_env[config.env], config)


def _settings(config: TrainConfig) -> dict[str, Any]:
    as_json = json.loads(json.dumps(to_json(config)))
    return plots.Curve(Path(), as_json, np.empty(0), np.empty(0)).settings
