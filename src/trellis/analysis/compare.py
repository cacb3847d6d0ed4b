"""`trellis compare RUN...`: final performance of runs, grouped by the settings that differ.

A score is the last evaluation in a run's log, or the return of its training episodes in the last
tenth of its iterations. Groups are compared within an environment. Over all environments that two
groups share, the probability of improvement compares them without a common scale.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import statistics
from trellis.analysis.labels import group_labels
from trellis.analysis.logged_run import REPETITION, LoggedRun, group_runs
from trellis.runs.folder import read_config
from trellis.runs.log import METRICS
from trellis.runs.log_lines import LogError

LAST = 0.1
"""Last part of a run, whose training episodes make its training score."""


@dataclass(frozen=True)
class ScoredRun(LoggedRun):
    """A run and its score."""

    score: float
    is_over: bool
    """Whether the run has finished."""


def compare_runs(folders: Sequence[Path], *, training: bool = False) -> dict[str, Any]:
    """Return the scores of each group and the comparison of each pair as plain numbers.

    Args:
        folders: Run folders.
        training: Score the training episodes of a run's last tenth, not its last evaluation.

    Raises:
        ValueError: If a run has no score, or an experiment has a seed twice.
    """
    if not folders:
        raise ValueError("no run to compare: name at least one run folder")
    groups = _groups([read_score(folder, training=training) for folder in folders])
    rows = []
    for (env, label), runs in groups.items():
        scores = np.array([run.score for run in runs])
        middle = statistics.bootstrap(statistics.interquartile_mean, [scores])
        rows.append(
            {
                "env": env,
                "group": label,
                "runs": [str(run.folder) for run in runs],
                "seeds": [run.config.seed for run in runs],
                "unfinished": [str(run.folder) for run in runs if not run.is_over],
                "scores": scores.tolist(),
                "mean": float(scores.mean()),
                "interquartile_mean": middle.to_json(),
            }
        )
    return {
        "score": "training episodes of the last tenth" if training else "last evaluation",
        "confidence": statistics.CONFIDENCE,
        "resamples": statistics.RESAMPLES,
        "groups": rows,
        "improvement": _improvement(groups),
    }


def read_score(folder: Path, *, training: bool) -> ScoredRun:
    """Return one run's score, from its log alone."""
    run = LoggedRun(folder, read_config(folder))
    rows = [_checked(run, row) for row in run.stream()]
    found = [row["eval_return_mean"] for row in rows if row["eval_return_mean"] is not None]
    if not training and not found:
        raise ValueError(f"{folder} has not been evaluated yet: compare it with --training")
    score = training_return(rows) if training else float(found[-1])
    if not np.isfinite(score):
        raise ValueError(
            f"no episode of {folder} ended in the last tenth of its iterations: train it for"
            " longer, or compare evaluations"
        )
    over = run.config.is_over(rows[-1]["iteration"], rows[-1]["steps"])
    return ScoredRun(folder, run.config, score, over)


def _checked(run: LoggedRun, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a row that make a score."""
    names = ("iteration", "steps", "episodes", "episode_return_mean", "eval_return_mean")
    found = {name: run.number(row, name) for name in names}
    if found["episode_return_mean"] is not None and not (found["episodes"] or 0) > 0:
        raise LogError(
            f"{run.folder / METRICS}: iteration {row['iteration']} has a return, but no episodes"
        )
    return found


def training_return(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean return of the episodes in a run's last tenth; -inf if none ended there."""
    last = rows[-max(1, round(LAST * len(rows))) :]
    found = [row for row in last if row.get("episode_return_mean") is not None]
    if not found:
        return -np.inf
    returns = [row["episode_return_mean"] for row in found]
    return float(np.average(returns, weights=[row["episodes"] for row in found]))


def _groups(runs: Sequence[ScoredRun]) -> dict[tuple[str, str], list[ScoredRun]]:
    """Return the runs by environment and label."""
    result: dict[tuple[str, str], list[ScoredRun]] = {}
    samplers: dict[str, set[str]] = {}
    for run in runs:
        samplers.setdefault(run.config.step.method, set()).add(run.config.sampling.sampler)
    # Labels match groups across environments, where vine must not pass for single path.
    mixed = [method for method, used in samplers.items() if len(used) > 1]
    for env in dict.fromkeys(run.config.env for run in runs):
        here = group_runs([run for run in runs if run.config.env == env], REPETITION | {"env"})
        labels = group_labels([settings for settings, _ in here], mixed)
        result |= {(env, label): group for label, (_, group) in zip(labels, here, strict=True)}
    return result


def _improvement(groups: Mapping[tuple[str, str], Sequence[ScoredRun]]) -> list[dict[str, Any]]:
    """Return the probability that each group improves on each other in their environments."""
    scores = {key: np.array([run.score for run in runs]) for key, runs in groups.items()}
    names = list(dict.fromkeys(name for _, name in groups))
    found = []
    for new, old in itertools.combinations(names, 2):
        shared = [e for e, name in groups if name == new and (e, old) in groups]
        if not shared:
            continue
        estimate = statistics.bootstrap(
            statistics.probability_of_improvement,
            [scores[env, new] for env in shared],
            [scores[env, old] for env in shared],
        )
        found.append({"group": new, "over": old, "envs": shared, **estimate.to_json()})
    return found
