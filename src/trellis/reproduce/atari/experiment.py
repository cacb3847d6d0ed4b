"""Table 1 and the learning curves of Figure 5 (Sec. 8.2): `trellis reproduce atari`.

Trains the missing runs, one game at a time, evaluates the last policy of every run in the folder,
and writes atari.json, table.csv, the figure and the page. `plans.py` has the runs as data,
`scores.py` evaluates policies, and `table.py`, `page.py` and `figure.py` write the results.

Every evaluation is written at once and never repeated. The parameters identify a policy, and the
rules of the game identify random actions. Results stay when the folders of their runs are lost, and
a finished run is not trained again.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from trellis import presets
from trellis.analysis.curves import seconds
from trellis.checkpoint_format import CHECKPOINTS, newest_iteration
from trellis.policies.saved import SavedPolicy
from trellis.reproduce.atari import figure, page, plans, scores, table
from trellis.reproduce.atari.plans import GAMES, MODERN, RECIPES, FoundRun
from trellis.reproduce.atari.scores import EPISODES, summary
from trellis.reproduce.experiment import (
    TrainingExperiment,
    command,
    look_up,
    require_at_least_one,
    require_scale,
)
from trellis.reproduce.files import (
    Record,
    ResultsError,
    made_by,
    read_json,
    read_results,
    write_json,
)
from trellis.reproduce.kept_runs import identity
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.runs.folder import locked

JSON = "atari.json"
SCALES = {"paper": 0.1, "paper-vine": 0.05, "modern": 1.0}
"""Default scale of each recipe."""
Found = list[tuple[FoundRun, SavedPolicy]]
"""Runs, each with its last policy."""


@dataclass(frozen=True)
class Atari(TrainingExperiment):
    """Table 1 and Figure 5: seven games from pixels (Sec. 8.2)."""

    name: ClassVar = "atari"
    out: Path = Path("results/atari")
    seeds: int = 1
    runs: Path = Path("runs/atari")
    games: tuple[str, ...] = tuple(GAMES)
    """Games to train and evaluate."""
    recipe: Literal["paper", "paper-vine", "modern"] = "paper"
    """Recipe: the paper's single path, the paper's vine, or ours (modern/atari)."""
    preset: str | None = None
    """Preset. Default: the recipe's."""
    steps: int | None = None
    """Number of steps of a run; shorter runs continue. Default: the preset's."""
    scale: float | None = None
    """Steps per iteration as a part of the paper's, in (0, 1], for the paper's recipes only.
    Default: a tenth, and a twentieth with vine. 1 is Table 3."""
    unfinished: bool = False
    """Plan no runs. Continue all unfinished runs in the folder, of any recipe and scale."""
    evaluate_only: bool = False
    """Train nothing. Evaluate all runs in the folder, finished or not."""
    parallel: int = 1
    """Number of runs at the same time, one thread each. 1 gives a run all cores."""

    def __post_init__(self):
        super().__post_init__()
        look_up(GAMES, self.games, "game")
        look_up(RECIPES, (self.recipe,), "recipe")
        look_up(presets.ATARI, (self._preset,), "Atari preset")
        require_at_least_one(steps=1 if self.steps is None else self.steps)
        require_scale(self._scale)
        if self._preset == MODERN and self._scale != 1:
            raise ValueError(
                f"scale applies to the paper's recipes only; use --steps to shorten {MODERN}"
            )

    @property
    def _preset(self) -> str:
        return self.preset or RECIPES[self.recipe]

    @property
    def _scale(self) -> float:
        if self.scale is not None or self.preset is not None:
            return 1.0 if self.scale is None else self.scale
        return SCALES[self.recipe]

    @property
    def plans(self) -> list[RunPlan]:
        """Planned runs, game by game; or the unfinished runs in the folder, if these are wanted."""
        if self.unfinished:
            found = [run.plan for run in plans.find_runs(self.runs, self.games)]
            return [plan for plan in found if not plan.finished]
        name = self._preset.replace("/", "-")
        if self._scale != 1:
            name += f"-scale-{self._scale:g}"
        return [
            plan
            for game in self.games
            for plan in self.plan_seeds(
                self.runs / name / game,
                plans.settings(game, self._preset, self.steps, self._scale),
                range(self.seeds),
            )
        ]

    def run(self, say: Say) -> dict[str, Any]:
        """Train the missing runs, unless `evaluate_only` is set; then report on all runs.

        Each group of `parallel` runs is reported as soon as it ends.
        """
        if self.evaluate_only:
            return self._report(say)
        planned = self.plans
        if not self.unfinished:
            kept = self._read().get("runs", [])
            planned = [plan for plan in planned if not _is_kept(plan, kept)]
            say(f"{len(self.plans) - len(planned)} of {len(self.plans)} runs are kept")
            for plan in planned:
                plans.extend(plan)
        for first in range(0, len(planned), self.parallel):
            execute(planned[first : first + self.parallel], self.parallel, say)
            if first + self.parallel < len(planned):
                self._report(say)
        return self._report(say)

    def _report(self, say: Say) -> dict[str, Any]:
        """Write and return the results of all runs of these games, finished or not.

        Results of other games do not change.
        """
        found = self._started(say)
        results = self._update()
        # Random actions use the preset's rules in all games, and a run's rules in its game.
        rules = [(game, dict(presets.ATARI[self._preset].env_options)) for game in self.games]
        rules += [(run.game, dict(run.config.env_options)) for run, _ in found]
        for game, options in rules:
            if table.find_random(results["random"], game, options) is None:
                random = {"game": game, "env_options": options}
                say(f"Playing {EPISODES} episodes of {game}, {table.random_label(random)}")
                played = scores.play_random(plans.env_id(game), options, EPISODES)
                results = self._update(random={**random, "evaluation": summary(played)})
        known = {
            (record["game"], record["fingerprint"]): record["evaluation"]
            for record in results["runs"]
            if record["evaluation"]["episodes"] == EPISODES
        }
        for index, (run, last) in enumerate(found, start=1):
            facts = {**_facts(run, last), **made_by(command(self))}
            evaluation = known.get((run.game, facts["fingerprint"]))
            if evaluation is None:
                say(f"Playing {EPISODES} episodes with {run.name} ({index} of {len(found)})")
                evaluation = summary(scores.play_policy(last, EPISODES))
            results = self._update(run={**facts, "evaluation": evaluation})
        self._write_page(results)
        return results

    def write_pages(self) -> None:
        """Write table.csv, the figure and the page from atari.json."""
        self._write_page(read_results(self.out / JSON))

    def _write_page(self, results: Record) -> None:
        table.write(results, self.out)
        figure.plot(results, self.out / f"{page.FIGURE}.png")
        page.write(results, self.out)

    def _read(self) -> Record:
        """Return the results so far, empty before the first."""
        return read_json(self.out / JSON)

    def _update(self, run: Record | None = None, random: Record | None = None) -> dict[str, Any]:
        """Add a result to atari.json, which other reports may change at the same time.

        The new result replaces an earlier one of the same experiment, unless that has more steps.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out):
            before = self._read()
            randoms = [
                record
                for record in before.get("random", [])
                if record["evaluation"]["episodes"] == EPISODES
            ]
            if random and not table.find_random(randoms, random["game"], random["env_options"]):
                randoms.append(random)
            runs = before.get("runs", [])
            if run is not None:
                same = [old for old in runs if _identity(old) == _identity(run)]
                if all(old["steps"] <= run["steps"] for old in same):
                    runs = [*(old for old in runs if old not in same), run]
            results = {
                "settings": {"episodes": EPISODES, "actions": scores.ACTIONS},
                "random": randoms,
                "runs": runs,
                "rows": table.rows(runs, randoms),
            }
            write_json(self.out / JSON, results)
        return results

    def _started(self, say: Say) -> Found:
        """Return the runs in the folder that have at least one iteration."""
        found: Found = []
        for run in plans.find_runs(self.runs, self.games):
            if not newest_iteration(run.folder / CHECKPOINTS):
                say(f"Skipping {run.name}: it has no iteration yet")
                continue
            for other, _ in found:
                if _experiment(other) == _experiment(run):
                    raise ResultsError(
                        f"{other.folder} and {run.folder} have the same settings and the same"
                        " seed, so a mean would count one experiment twice: move one of them away"
                    )
            found.append((run, SavedPolicy.load(run.folder)))
        if not found and not self._read().get("runs"):
            raise ResultsError(
                f"there is no run of {', '.join(self.games)} in {self.runs}: leave out"
                " --evaluate-only to train one, or name the folder with --runs"
            )
        return found


def _identity(record: Record) -> tuple[Any, ...]:
    """Return what no two results may share: game, preset, changed settings, steps and seed."""
    differs = json.dumps(record["differs"], sort_keys=True)
    scale = record.get("scale", 1.0)  # Results of earlier commits have no scale.
    names = "game", "preset", "planned_steps", "seed"
    return *(record[name] for name in names), scale, differs


def _experiment(run: FoundRun) -> tuple[Any, ...]:
    """Return what no two folders of a report may share."""
    config = run.config
    return config.env, config.preset, run.scale, run.differs, config.total_steps, config.seed


def _is_kept(plan: RunPlan, kept: Collection[Record]) -> bool:
    """Return whether there is a result of this plan, finished."""
    wanted = {"settings": identity(plan.config), "seed": plan.config.seed, "env": plan.config.env}
    return any(record["finished"] and wanted.items() <= record.items() for record in kept)


def _facts(run: FoundRun, last: SavedPolicy) -> dict[str, Any]:
    """Return the facts about a run that need no evaluation: progress, time and curve."""
    rows = run.rows
    until = [row for row in rows if row["iteration"] <= last.iteration]
    return {
        "run": run.name,
        "game": run.game,
        "preset": run.config.preset,
        "scale": run.scale,
        "differs": run.differs,
        "env": run.config.env,
        "settings": identity(run.config),
        "env_options": dict(run.config.env_options),
        "seed": run.config.seed,
        "iterations": last.iteration,
        "steps": last.steps,
        "planned_steps": run.config.total_steps,
        "finished": run.config.is_over(last.iteration, last.steps),
        "minutes": round(float(seconds(until)[-1]) / 60, 2) if until else 0.0,
        "threads": run.config.threads,
        "fingerprint": scores.fingerprint(last),
        "curve": figure.cost_curve(rows),
    }
