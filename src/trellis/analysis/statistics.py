"""Statistics of few runs: interquartile means, bootstrap intervals, probability of improvement.

The statistics of Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice". Scores are one array per task with the scores of its runs; lengths may differ:

    interquartile mean           mean of the middle half of the scores of all tasks
    probability of improvement   mean over tasks of P(X > Y) + P(X = Y)/2, for two random runs
    stratified bootstrap         runs are resampled, with replacement, within each task

Percentiles of resamples make intervals that are too narrow for few runs. The percentiles here are
those of Hesterberg (2015), "What Teachers Should Know About the Bootstrap", Sec. 4: for the mean of
one task they give about the width of Student's interval. No interval is wider than the resamples,
so below six runs of a single task it covers less than 95%.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 5_000
LEAST_RUNS = 3
"""Smallest number of runs of a task that have a bootstrap interval."""
TRIM = 0.25
"""Part of the scores, at either end, that an interquartile mean leaves out."""

Scores = Sequence[NDArray[np.float64]]
"""Scores of the runs of each task."""


class Estimate(NamedTuple):
    """A number and its 95% interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        """Return the fields as JSON values; a missing interval is null."""
        return {name: _finite(number) for name, number in self._asdict().items()}

    @property
    def interval(self) -> list[float | None]:
        """Both ends of the interval as JSON values; null if there is no interval."""
        return [_finite(self.low), _finite(self.high)]


def interquartile_mean(scores: Scores) -> float:
    """Return the interquartile mean over the runs of all tasks; with fewer than four, the mean."""
    if not any(len(row) for row in scores):
        raise ValueError("no scores: give at least one task with a run")
    together = np.sort(np.concatenate([np.asarray(row, np.float64) for row in scores]))
    cut = int(TRIM * len(together))
    return float(together[cut : len(together) - cut].mean())


def probability_of_improvement(new: Scores, old: Scores) -> float:
    """Return the probability that a run of `new` beats a run of `old`, averaged over tasks.

    A tie counts half.
    """
    if len(new) != len(old):
        raise ValueError(f"both groups need the same tasks, got {len(new)} and {len(old)} tasks")
    chances = []
    for x, y in zip(new, old, strict=True):
        difference = np.asarray(x)[:, None] - np.asarray(y)[None, :]
        chances.append(np.mean((difference > 0) + 0.5 * (difference == 0)))
    return float(np.mean(chances))


def bootstrap(
    statistic: Callable[..., float],
    *groups: Scores,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Return a statistic of one or more groups of scores, with its expanded percentile interval.

    The interval is NaN if a task has fewer than `LEAST_RUNS` runs.
    """
    value = statistic(*groups)
    counts = [len(row) for group in groups for row in group]
    if min(counts) < LEAST_RUNS:
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    resampled = [
        statistic(*([rng.choice(row, len(row)) for row in group] for group in groups))
        for _ in range(resamples)
    ]
    tail = 100 * _expanded_tail(counts)
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


def _expanded_tail(counts: Sequence[int]) -> float:
    """Return the share of resamples below an expanded percentile interval.

    Args:
        counts: Number of runs of each task of each group.
    """
    from scipy.special import ndtr, stdtrit

    degrees = sum(counts) - len(counts)
    narrower = np.sqrt(min(counts) / (min(counts) - 1))
    return float(ndtr(-narrower * stdtrit(degrees, (1 + CONFIDENCE) / 2)))


def mean_interval(scores: Sequence[float]) -> Estimate:
    """Return the mean over runs with Student's interval, which is NaN for a single run."""
    values = np.asarray(scores, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, np.nan, np.nan)
    half = float(student_half_width(values))
    return Estimate(mean, mean - half, mean + half)


def student_half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half the width of Student's interval for the mean over the first axis."""
    # Not scipy.stats, which takes a second to load.
    from scipy.special import stdtrit

    count = len(values)
    quantile = stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    return quantile * values.std(axis=0, ddof=1) / np.sqrt(count)


def interval_text(
    low: float | None, high: float | None, spec: str = ".1f", blank: str = "-"
) -> str:
    """Return an interval as the text of a table cell, or `blank` without an interval."""
    return blank if low is None or high is None else f"{low:{spec}} to {high:{spec}}"


def _finite(number: float) -> float | None:
    return None if np.isnan(number) else number
