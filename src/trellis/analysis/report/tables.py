"""The tables of the report: evaluations, the step's health, settings, versions."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trellis import presets
from trellis.analysis.labels import Settings, short
from trellis.analysis.logged_run import settings_of
from trellis.analysis.report.markup import Html, count, element, number, percent, table
from trellis.analysis.report.read import Evaluation, Mean, ReportRun
from trellis.analysis.statistics import Estimate, interval_text, mean_interval
from trellis.config import TrainConfig

UNSET = "–"


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    env: str
    label: str
    settings: Settings
    runs: Sequence[ReportRun]

    @property
    def title(self) -> str:
        """Label and seeds."""
        seeds = (
            f"{len(self.runs)} seeds" if len(self.runs) > 1 else f"seed {self.runs[0].config.seed}"
        )
        return f"{self.label} ({seeds})"

    @property
    def bound(self) -> float | None:
        """δ; None if it changes with the steps, or if the method has none."""
        step = self.runs[0].config.step
        return None if step.is_search or step.final_max_kl is not None else step.max_kl


def evaluation_table(groups: Sequence[Group]) -> Html:
    """Return the last and best evaluations of each group, with intervals."""
    heading = (
        *("Environment", "Group", "Steps", "Last evaluation", "95% interval", "Over"),
        *("Best evaluation", "State"),
    )
    rows = []
    for group in groups:
        last = [run.last for run in group.runs if run.last]
        best = [run.best.mean for run in group.runs if run.best]
        estimate, over = final_score(last, group.runs[0].config.eval_episodes)
        unfinished = sum(not run.is_over for run in group.runs)
        rows.append(
            (
                *(group.env, group.title, count(max(run.steps for run in group.runs))),
                number(estimate.value if estimate else None),
                interval(estimate),
                over,
                number(max(best, default=None)),
                f"{unfinished} unfinished" if unfinished else "finished",
            )
        )
    return table("Evaluations", heading, rows, text_columns=2)


def final_score(last: Sequence[Evaluation], episodes: int) -> tuple[Estimate | None, str]:
    """Return the mean of last evaluations with its interval, and what the interval is over.

    Several runs give Student's interval over seeds. A single run gives one over its episodes.
    """
    if not last:
        return None, UNSET
    if len(last) > 1:
        return mean_interval([each.mean for each in last]), f"{len(last)} seeds"
    (only,) = last
    if only.std is None or episodes < 2:
        return Estimate(only.mean, math.nan, math.nan), "1 seed"
    half = student_quantile(episodes) * only.std / math.sqrt(episodes - 1)
    return Estimate(only.mean, only.mean - half, only.mean + half), f"{episodes} episodes"


def student_quantile(size: int) -> float:
    """Return the 97.5% quantile of Student's t for the mean of `size` values; 0 for one value."""
    from scipy.special import stdtrit

    return float(stdtrit(size - 1, 0.975)) if size > 1 else 0.0


def interval(estimate: Estimate | None) -> str:
    """Return the interval as the text of a cell."""
    low, high = estimate.interval if estimate else (None, None)
    digits = 0 if estimate and abs(estimate.value) >= 100 else 2
    return interval_text(low, high, f",.{digits}f", UNSET)


def health_table(groups: Sequence[Group]) -> Html:
    """Return the step's health of each group."""
    heading = (
        *("Environment", "Group", "Full steps", "Accepted", "Mean KL / δ", "Backtracks"),
        *("CG residual", "Explained variance", "Entropy", "Statuses"),
    )
    rows = []
    for group in groups:
        health = [run.health for run in group.runs]
        iterations = sum(sum(each.statuses.values()) for each in health)
        accepted = sum(each.statuses["accepted"] for each in health)
        full, steps = sum(each.full for each in health), sum(each.steps for each in health)
        kl = _mean([each.means["kl"] for each in health])
        limit = group.bound
        first, last = (mean_end([each.means["entropy"] for each in health], end) for end in (0, 1))
        rows.append(
            (
                *(group.env, group.title),
                percent(full / steps if steps else None),
                percent(accepted / iterations if iterations else None),
                number(None if kl is None or limit is None else kl / limit, 2),
                number(_mean([each.means["backtracks"] for each in health]), 2),
                number(_mean([each.means["cg_residual"] for each in health]), 2),
                number(mean_end([each.means["explained_variance"] for each in health], 1), 2),
                UNSET if first is None else f"{number(first, 3)} → {number(last, 3)}",
                _statuses(health),
            )
        )
    return table("Averages over all iterations", heading, rows, text_columns=2)


def _mean(means: Sequence[Mean]) -> float | None:
    values = sum(mean.count for mean in means)
    return sum(mean.total for mean in means) / values if values else None


def mean_end(means: Sequence[Mean], end: int) -> float | None:
    """Return the mean over runs of the first (0) or last (1) value."""
    found = [mean.last if end else mean.first for mean in means]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if values else None


def _statuses(health: Sequence[Any]) -> str:
    total: dict[str, int] = {}
    for each in health:
        for name, times in each.statuses.items():
            total[name] = total.get(name, 0) + times
    order = sorted(total, key=lambda name: -total[name])
    return ", ".join(f"{name} {total[name]:,}" for name in order)


def difference_table(groups: Sequence[Group]) -> Html:
    """Return the settings in which groups differ."""
    names = list(dict.fromkeys(name for group in groups for name in group.settings))
    rows = []
    for name in names:
        values = [group.settings.get(name) for group in groups]
        if len({repr(value) for value in values}) > 1:
            rows.append((name, *short(values)))
    if not rows:
        return element("p", "All runs have the same settings, apart from their seeds.")
    heading = ("Setting", *(f"{group.env}: {group.label}" for group in groups))
    return table("Settings that differ between groups", heading, rows)


def preset_table(group: Group) -> Html:
    """Return the settings in which a group differs from its preset."""
    config = group.runs[0].config
    base, name = preset_of(config)
    before = settings_of(base)
    rows = [
        (key, *short([before.get(key), value]))
        for key, value in group.settings.items()
        if before.get(key) != value and key not in ("env", "preset")
    ]
    if not rows:
        return element("p", f"{group.title}: exactly the {name}.")
    title = f"{group.title}: settings that differ from {name}"
    return table(title, ("Setting", "Preset", "Here"), rows)


def preset_of(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return the settings of a run's preset and its name."""
    try:
        base = presets.resolve(config.env, config.preset)
    except ValueError:  # A preset of another version.
        base = presets.resolve(config.env)
    return base, f"preset {base.preset}"


def run_table(groups: Sequence[Group]) -> Html:
    """Return a row for each run."""
    heading = ("Run", "Group", "Seed", "Iterations", "Steps", "Last", "Best")
    rows = [
        (
            *(run.folder, f"{group.env}: {group.label}", run.config.seed),
            *(count(run.iteration), count(run.steps)),
            *(number(each.mean if each else None) for each in (run.last, run.best)),
        )
        for group in groups
        for run in group.runs
    ]
    return table("Runs", heading, rows, text_columns=2)


def version_table(groups: Sequence[Group]) -> Html:
    """Return the versions that wrote the runs; runs with the same versions share a row."""
    found: dict[tuple[tuple[str, str], ...], list[Path]] = {}
    for group in groups:
        for run in group.runs:
            found.setdefault(tuple(run.versions.items()), []).append(run.folder)
    names = list(dict.fromkeys(name for versions in found for name, _ in versions))
    if not names:
        return element("p", "The runs have no checkpoint that names its versions.")
    rows = []
    for versions, folders in found.items():
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        known: Mapping[str, str] = dict(versions)
        rows.append((f"{folders[0]}{more}", *(known.get(name, UNSET) for name in names)))
    return table("Versions that wrote the newest checkpoints", ("Run", *names), rows)
