"""`trellis compare RUN...`: final performance of runs, grouped by what tells them apart.

A score is the last evaluation in a run's log, or the return of its training episodes in the last
tenth of its iterations. Groups are compared within an environment, and over all environments that
they share by the probability of improvement, which needs no common scale.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.analysis import curves as plots
from trellis.analysis import statistics as compare
from trellis.analysis.statistics import Estimate
from trellis.runs.folder import read_config
from trellis.runs.log import METRICS, read_metrics

LAST = 0.1
"""The part of a run, at its end, that makes its final performance while training."""
METHOD, SAMPLER = "step.method", "sampling.sampler"
OF_THE_SCORE = ("total_steps", "max_iterations", "eval_drawn")
"""Settings that make no other experiment, but another final performance."""
REPETITION = tuple(name for name in plots.NOT_AN_EXPERIMENT if name not in OF_THE_SCORE)


@dataclass(frozen=True)
class Scored:
    """A run with its settings and score."""

    folder: Path
    env: str
    seed: int
    settings: Mapping[str, Any]
    score: float
    is_over: bool


def compare_runs(folders: Sequence[Path], *, training: bool = False) -> dict[str, Any]:
    """The table and the pairs, as plain numbers.

    Raises:
        ValueError: a run without a score, or the same experiment and seed twice.
    """
    if not folders:
        raise ValueError("name at least one run to compare")
    groups = _groups([read(folder, training=training) for folder in folders])
    rows = []
    for (env, label), runs in groups.items():
        scores = np.array([run.score for run in runs])
        rows.append(
            {
                "env": env,
                "group": label,
                "runs": [str(run.folder) for run in runs],
                "seeds": [run.seed for run in runs],
                "unfinished": [str(run.folder) for run in runs if not run.is_over],
                "scores": scores.tolist(),
                "mean": float(scores.mean()),
                "interquartile_mean": _plain(
                    compare.bootstrap(compare.interquartile_mean, [scores])
                ),
            }
        )
    return {
        "score": "training episodes of the last tenth" if training else "last evaluation",
        "confidence": compare.CONFIDENCE,
        "resamples": compare.RESAMPLES,
        "groups": rows,
        "improvement": _improvement(groups),
    }


def read(folder: Path, *, training: bool) -> Scored:
    """One run's score, from its log alone."""
    config = plots.read_settings(folder)
    rows = read_metrics(folder) if (folder / METRICS).is_file() else []
    found = [row["eval_return_mean"] for row in rows if row.get("eval_return_mean") is not None]
    if not training and not found:
        raise ValueError(f"{folder} has not been evaluated yet: compare it with --training")
    score = training_return(rows) if training else float(found[-1])
    if not np.isfinite(score):
        raise ValueError(
            f"no episode of {folder} ended in the last tenth of its iterations: train it for"
            " longer, or compare evaluations"
        )
    settings = plots.settings_of(config, ("env", *REPETITION))
    over = read_config(folder).is_over(rows[-1]["iteration"], rows[-1]["steps"])
    return Scored(folder, config["env"], config["seed"], settings, score, over)


def training_return(rows: Sequence[Mapping[str, Any]]) -> float:
    """Mean return of the episodes in the last tenth of a run's iterations; -inf without any."""
    last = rows[-max(1, round(LAST * len(rows))) :]
    found = [row for row in last if row.get("episode_return_mean") is not None]
    if not found:
        return -np.inf
    returns, episodes = (
        [row[name] for row in found] for name in ("episode_return_mean", "episodes")
    )
    return float(np.average(returns, weights=episodes))


def _groups(runs: Sequence[Scored]) -> dict[tuple[str, str], list[Scored]]:
    """Runs by environment and by what tells them apart there."""
    result: dict[tuple[str, str], list[Scored]] = {}
    samplers: dict[Any, set[Any]] = {}
    for run in runs:
        samplers.setdefault(run.settings.get(METHOD), set()).add(run.settings.get(SAMPLER))
    # Labels are what groups of several environments are matched by, and vine is another method.
    mixed = [method for method, used in samplers.items() if len(used) > 1]
    for env in dict.fromkeys(run.env for run in runs):
        here: dict[str, list[Scored]] = {}
        for run in runs:
            if run.env == env:
                here.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
        for same in here.values():
            _require_different_seeds(same)
        labels = label([same[0].settings for same in here.values()], mixed)
        for name, same in zip(labels, here.values(), strict=True):
            result[env, name] = same
    return result


def label(settings: Sequence[Mapping[str, Any]], mixed: Sequence[Any] = ()) -> list[str]:
    """The method of each, the sampler where the method is `mixed`, and as few other settings as it
    takes to tell all of them apart."""
    keys = dict.fromkeys([METHOD, SAMPLER, *(key for each in settings for key in each)])
    varied = [key for key in keys if len({repr(each.get(key)) for each in settings}) > 1]
    words = [[str(each.get(METHOD, "?"))] for each in settings]
    for each, said in zip(settings, words, strict=True):
        if each.get(METHOD) in mixed:
            said.append(f"sampler={each.get(SAMPLER)}")
    for key in varied:
        if key == METHOD:
            continue
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, each in enumerate(words):
            alike.setdefault(tuple(each), []).append(index)
        for members in alike.values():
            values = [settings[index].get(key) for index in members]
            if len(set(map(repr, values))) > 1:
                for index, value in zip(members, plots.short(values), strict=True):
                    words[index].append(f"{key.split('.')[-1]}={value}")
    return [", ".join(each) for each in words]


def _improvement(groups: Mapping[tuple[str, str], Sequence[Scored]]) -> list[dict[str, Any]]:
    """Of each group over each other one, over the environments that both have."""
    scores = {
        key: np.array([run.score for run in runs], np.float64) for key, runs in groups.items()
    }
    names = list(dict.fromkeys(name for _, name in groups))
    found = []
    for new, old in itertools.combinations(names, 2):
        shared = [e for e, name in groups if name == new and (e, old) in groups]
        if not shared:
            continue
        estimate = compare.bootstrap(
            compare.probability_of_improvement,
            [scores[env, new] for env in shared],
            [scores[env, old] for env in shared],
        )
        found.append({"group": new, "over": old, "envs": shared, **_plain(estimate)})
    return found


def _require_different_seeds(runs: Sequence[Scored]) -> None:
    seen: dict[int, Path] = {}
    for run in runs:
        if run.seed in seen:
            raise ValueError(
                f"{seen[run.seed]} and {run.folder} have the same settings and the same seed"
                f" {run.seed}: leave one of them out"
            )
        seen[run.seed] = run.folder


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """JSON has no NaN: an interval that does not exist is null."""
    return {k: None if np.isnan(v) else v for k, v in estimate._asdict().items()}


def show(found: Mapping[str, Any]) -> None:
    """The comparison as tables on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"Final performance ({found['score']})")
    for name in ("environment", "group", "runs", "mean", "interquartile mean", "95% interval"):
        table.add_column(name, justify="left" if name in ("environment", "group") else "right")
    for row in found["groups"]:
        middle = row["interquartile_mean"]
        table.add_row(
            *(row["env"], row["group"], _count(row), f"{row['mean']:,.1f}"),
            *(f"{middle['value']:,.1f}", _interval(middle, ",.1f")),
        )
    console.print(table)
    if not found["improvement"]:
        return
    table = Table(title="Probability of improvement")
    for name in ("group", "over", "environments", "probability", "95% interval"):
        table.add_column(name, justify="left" if name in ("group", "over") else "right")
    for row in found["improvement"]:
        table.add_row(
            *(row["group"], row["over"], str(len(row["envs"]))),
            *(f"{row['value']:.2f}", _interval(row, ".2f")),
        )
    console.print(table)


def _count(row: Mapping[str, Any]) -> str:
    unfinished = len(row["unfinished"])
    return f"{len(row['scores'])}" + (f" ({unfinished} not finished)" if unfinished else "")


def _interval(estimate: Mapping[str, float | None], spec: str) -> str:
    low, high = estimate["low"], estimate["high"]
    return "-" if low is None or high is None else f"{low:{spec}} to {high:{spec}}"
