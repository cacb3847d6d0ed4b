"""Finished runs, kept in the results as one JSON line each: `runs/ENV.jsonl`.

A line has the settings, the seed, the return of the final policy, a short learning curve and the
commit. The settings and the seed identify a run, so a finished run is never repeated, even if its
folder is lost. An experiment can thus be spread over days and machines.
"""

import fcntl
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import curves
from trellis.analysis.logged_run import settings_of
from trellis.config import TrainConfig
from trellis.policies.saved import SavedPolicy
from trellis.reproduce.files import Record, ResultsError, rounded
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute
from trellis.training.evaluation import evaluate_saved

FOLDER = "runs"
"""Folder of the kept runs within the results."""
POINTS = 100
"""Largest number of points of a kept learning curve."""


def identity(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that differ from the defaults, and the number of steps.

    Settings that are added later have defaults that change nothing, so old lines stay valid.
    """
    defaults = settings_of(TrainConfig(config.env))
    changed = {
        name: value
        for name, value in settings_of(config).items()
        if name != "preset" and value != defaults.get(name)
    }
    return {"total_steps": config.total_steps, **json.loads(json.dumps(changed))}


class KeptRuns:
    """The finished runs of an experiment.

    Args:
        out: Folder of the results.
        episodes: Number of episodes that each final policy plays.
    """

    def __init__(self, out: Path, episodes: int):
        self._folder, self._episodes = out / FOLDER, episodes

    def find(self, config: TrainConfig) -> Record | None:
        """Return the kept run with these settings and this seed; None if there is none."""
        return self._find(self.of(config.env), config)

    def seeds_of(self, config: TrainConfig) -> list[Record]:
        """Return the kept runs with these settings, one per seed, lowest seed first."""
        wanted = identity(config)
        same = [run for run in self.of(config.env) if run["settings"] == wanted]
        return sorted(same, key=lambda run: run["seed"])

    def missing(self, plans: Iterable[RunPlan]) -> list[RunPlan]:
        """Return the plans whose runs are not kept, the first one of those that are the same."""
        plans = list(plans)
        kept = {env: self.of(env) for env in dict.fromkeys(plan.config.env for plan in plans)}
        waiting: dict[str, RunPlan] = {}
        for plan in plans:
            config = plan.config
            if self._find(kept[config.env], config) is None:
                same = json.dumps([config.env, config.seed, identity(config)], sort_keys=True)
                waiting.setdefault(same, plan)
        return list(waiting.values())

    def of(self, env: str) -> list[Record]:
        """Return all kept runs of an environment.

        Raises:
            ResultsError: The file is damaged.
        """
        path = self._path(env)
        if not path.is_file():
            return []
        lines = path.read_text("utf-8").splitlines()
        try:
            return [json.loads(line) for line in lines if line.strip()]
        except ValueError as error:
            raise ResultsError(
                f"{path} has a line that is not JSON ({error}): delete that line"
            ) from error

    def train(self, plans: Sequence[RunPlan], parallel: int, say: Say) -> None:
        """Train the missing runs, `parallel` at a time, and keep each group as soon as it ends."""
        waiting = self.missing(plans)
        say(f"{len(plans) - len(waiting)} of {len(plans)} runs are kept")
        for first in range(0, len(waiting), parallel):
            group = waiting[first : first + parallel]
            execute(group, parallel, say)
            for plan in group:
                record = self.keep(plan)
                say(f"{plan.config.env}, seed {plan.config.seed}: {record['mean_return']:,.1f}")

    def keep(self, plan: RunPlan) -> Record:
        """Evaluate the final policy of a finished run, and add its line."""
        policy = SavedPolicy.load(plan.folder)
        result = evaluate_saved(policy, self._episodes)
        rows = plan.rows
        record = {
            "env": plan.config.env,
            "seed": plan.config.seed,
            "settings": identity(plan.config),
            "steps": policy.steps,
            "mean_return": result.mean_return,
            "std_return": result.std_return,
            "mean_length": result.mean_length,
            "first_return": _first_return(rows),
            "seconds": round(sum(row.get(p, 0) for row in rows for p in curves.TIMED_PARTS), 1),
            "curve": _curve(plan.folder),
            "commit": plan.commit,
        }
        return self._add(plan.config, record)

    def _add(self, config: TrainConfig, record: Record) -> Record:
        """Append a line unless another process has kept the same run; return the kept run.

        Several processes may keep runs in one file: each holds its lock while it reads and writes.
        """
        path = self._path(config.env)
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # Closing the file releases it.
            if (kept := self.find(config)) is not None:
                return kept
            file.write(line.encode("utf-8"))
        return record

    def _find(self, kept: Sequence[Record], config: TrainConfig) -> Record | None:
        wanted = identity(config)
        for run in kept:
            if run["seed"] == config.seed and run["settings"] == wanted:
                return run
        return None

    def _path(self, env: str) -> Path:
        return self._folder / f"{env.replace('/', '-')}.jsonl"


def files_of(out: Path) -> dict[str, str]:
    """Return the files of kept runs within the results, with their contents, for the page."""
    about = "Finished runs, one JSON line each: settings, seed, return, curve and commit."
    return {f"{FOLDER}/{path.name}": about for path in sorted((out / FOLDER).glob("*.jsonl"))}


def curve_of(run: Record) -> curves.Line:
    """Return the learning curve of a kept run."""
    points: Mapping[str, Sequence[float]] = run["curve"]
    return curves.Line(np.asarray(points["steps"]), np.asarray(points["returns"]))


def _curve(folder: Path) -> dict[str, list[float]]:
    """Return the mean returns of training episodes, averaged over neighboring iterations."""
    line = curves.read_curve(folder).line
    parts = min(POINTS, len(line.x))
    x = [float(part[-1]) for part in np.array_split(line.x, parts)]
    y = [float(part.mean()) for part in np.array_split(line.y, parts)]
    return {"steps": rounded(x), "returns": rounded(y)}


def _first_return(rows: Iterable[Mapping[str, Any]]) -> float:
    """Return the mean return of the first episodes that ended in training."""
    returns = (row.get("episode_return_mean") for row in rows)
    return next(value for value in returns if value is not None)
