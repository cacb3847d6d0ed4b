"""How sure a comparison of runs can be: interquartile means, bootstrap intervals, improvement.

The statistics of Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical
Precipice". Scores come as a row of runs for each task, rows of any length:

    interquartile mean           the mean of the middle half of all scores, of all tasks together
    probability of improvement   mean over tasks of P(X > Y) + P(X = Y)/2, of two runs at random
    stratified bootstrap         runs are drawn again, with replacement, within each task
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 5_000
TRIM = 0.25
"""Of the scores, at either end, that an interquartile mean leaves out."""

Scores = Sequence[NDArray[np.float64]]
"""The runs of each task."""


class Estimate(NamedTuple):
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> float:
    """Of all runs of all tasks together; of fewer than four, simply their mean."""
    if not any(len(row) for row in scores):
        raise ValueError("there are no scores")
    together = np.sort(np.concatenate([np.asarray(row, np.float64) for row in scores]))
    cut = int(TRIM * len(together))
    return float(together[cut : len(together) - cut].mean())


def probability_of_improvement(new: Scores, old: Scores) -> float:
    """That a run of `new` beats a run of `old`, averaged over tasks; a tie counts half."""
    if len(new) != len(old):
        raise ValueError(f"{len(new)} tasks cannot be compared with {len(old)}")
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
    """A statistic of one or more groups of scores, with its percentile interval.

    Where a task has a single run there is nothing to draw from: the interval is NaN.
    """
    value = statistic(*groups)
    if any(len(row) < 2 for group in groups for row in group):
        return Estimate(value, np.nan, np.nan)
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(*([_again(row, rng) for row in group] for group in groups))
        for _ in range(resamples)
    ]
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Estimate(value, float(low), float(high))


def mean_interval(scores: Sequence[float]) -> Estimate:
    """The mean of a few runs with Student's interval; NaN around a single one."""
    # Not scipy.stats, which takes a second to load.
    from scipy.special import stdtrit

    values = np.asarray(scores, np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return Estimate(mean, np.nan, np.nan)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half)


def _again(row: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    row = np.asarray(row)
    return row[rng.integers(len(row), size=len(row))]
