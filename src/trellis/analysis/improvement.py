"""Measures whether every iteration of a run improved its policy: `trellis improvement`.

TRPO promises monotonic improvement, η(π_{i+1}) ≥ η(π_i) (abstract, Sec. 3). Each policy π_i plays
the same episodes: equal initial states, equal random numbers of the environment, equal action
noise. The gain of an iteration is the mean over episodes of the paired difference d,

    gain = mean(d)        interval = gain ± t · std(d)/√episodes        (95%, Student)

An iteration improves, or falls, if its interval excludes 0. Otherwise it is undecided. With equal
policies an interval excludes 0 by chance in one of twenty iterations, half of them on each side.

The surrogate predicts the gain. L is a mean over visited states, so one unit of it is worth
`surrogate_scale` · length in the return of an episode, with the discounted length Σ γᵗ for the
discounted return. For the latter this is Eq. 3 if states are weighted by γᵗ, and an approximation
if they are weighted equally.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trellis.analysis.statistics import Estimate, mean_interval
from trellis.envs.batch import BatchEnv, Step
from trellis.policies.saved import SavedPolicy
from trellis.rng import Purpose, stream
from trellis.training.evaluation import play

CHANCE = 0.025
"""Probability that an interval of two equal policies lies above 0; the same for below."""


class Played(NamedTuple):
    """Episodes of one policy."""

    total: np.ndarray
    """Undiscounted return of each episode."""
    discounted: np.ndarray
    """Discounted return of each episode, whose expectation is the paper's η."""
    length: np.ndarray
    """Number of steps of each episode."""
    discounted_length: np.ndarray
    """Σ γᵗ over the steps of each episode."""


@dataclass(frozen=True)
class Gain:
    """Measured and predicted gain of one iteration, in one unit."""

    iteration: int
    """Iteration that led from the old policy to the new one."""
    old: float
    """Mean return of the old policy."""
    measured: Estimate
    """Gain of the new policy, with its interval."""
    predicted: float | None
    """Gain that the surrogate promised; None if the log does not have it."""

    @property
    def improves(self) -> bool:
        """Whether the interval lies above 0."""
        return self.measured.low > 0

    @property
    def falls(self) -> bool:
        """Whether the interval lies below 0."""
        return self.measured.high < 0


def play_episodes(env: BatchEnv, policy: SavedPolicy, seed: int) -> Played:
    """Play one episode per environment with sampled actions.

    Every policy gets the same initial states and the same random numbers.

    Args:
        env: Batch with one environment per episode.
        policy: The policy.
        seed: Seed of everything random.
    """
    rng = stream(seed, Purpose.EVALUATION)
    seeds = rng.integers(2**31, size=env.num_envs)
    discounted, discounted_length = np.zeros((2, env.num_envs))
    weight, gamma = 1.0, policy.config.estimation.gamma

    def add(_: BatchEnv, step: Step, active: np.ndarray) -> None:
        nonlocal weight
        discounted[active] += weight * step.reward[active]
        discounted_length[active] += weight
        weight *= gamma

    played = play(env, policy.actor(rng, stochastic=True), seeds, add)
    return Played(played.returns, discounted, played.lengths, discounted_length)


def measure(
    env: BatchEnv,
    load: Callable[[int], SavedPolicy],
    iterations: Sequence[int],
    promised: Mapping[int, float],
    *,
    seed: int,
    say: Callable[[int], None] = lambda done: None,
) -> dict[str, list[Gain]]:
    """Return the gains of iterations: `total` of the return, `discounted` of the paper's η.

    Args:
        env: Batch with one environment per episode.
        load: Function that returns the policy after an iteration; 0 is the initial one.
        iterations: Iterations to measure, in order, each at least 1.
        promised: Gain in reward per visited state that the surrogate promised, by iteration.
        seed: Seed of the episodes.
        say: Function that is called with the number of iterations measured so far.
    """
    gains: dict[str, list[Gain]] = {"total": [], "discounted": []}
    last: tuple[int, Played] | None = None
    for done, iteration in enumerate(iterations, 1):
        old = last[1] if last and last[0] == iteration - 1 else None
        old = old or play_episodes(env, load(iteration - 1), seed)
        new = play_episodes(env, load(iteration), seed)
        last = iteration, new
        lengths = {"total": old.length, "discounted": old.discounted_length}
        for unit, length in lengths.items():
            before, after = getattr(old, unit), getattr(new, unit)
            promise = promised.get(iteration)
            predicted = None if promise is None else promise * float(length.mean())
            estimate = mean_interval(after - before)
            gains[unit].append(Gain(iteration, float(before.mean()), estimate, predicted))
        say(done)
    return gains


def promises(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the promise of the surrogate in reward per visited state, by iteration.

    Args:
        rows: Metrics of the iterations of a run.
    """
    found = {}
    for row in rows:
        gain, scale = row.get("surrogate_gain"), row.get("surrogate_scale")
        if isinstance(gain, int | float) and isinstance(scale, int | float):
            found[int(row["iteration"])] = float(gain) * float(scale)
    return found


def choose(iterations: Sequence[int], most: int) -> list[int]:
    """Return at most this many iterations, spread evenly over the run."""
    if len(iterations) <= most:
        return list(iterations)
    places = np.linspace(0, len(iterations) - 1, most).round().astype(int)
    return [iterations[place] for place in places]


def summarize(gains: Sequence[Gain]) -> dict[str, Any]:
    """Return the shares of improvements and falls, the largest fall, and the promises kept."""
    count = len(gains)
    means = np.array([gain.measured.value for gain in gains])
    improved, fell = sum(gain.improves for gain in gains), sum(gain.falls for gain in gains)
    worst = gains[int(means.argmin())]
    levels = [gain.old for gain in gains]
    summary = {
        "iterations": count,
        "improved": improved,
        "improved_share": improved / count,
        "fell": fell,
        "fell_share": fell / count,
        "undecided": count - improved - fell,
        "falls_by_chance": CHANCE * count,
        "improved_by_estimate_share": float(np.mean(means > 0)),
        "mean_gain": float(means.mean()),
        "range_of_returns": [min(levels), max(levels)],
        "largest_fall": None,
    }
    if worst.measured.value < 0:
        summary["largest_fall"] = {
            "iteration": worst.iteration,
            "from": worst.old,
            "gain": worst.measured.value,
            "interval_95": worst.measured.interval,
            "is_certain": worst.falls,
        }
    return {**summary, "prediction": _prediction(gains)}


def _prediction(gains: Sequence[Gain]) -> dict[str, Any] | None:
    """Return how predicted and measured gains agree; None without predictions."""
    pairs = [(g.predicted, g.measured.value) for g in gains if g.predicted is not None]
    if not pairs:
        return None
    predicted, measured = np.array(pairs).T
    varies = len(pairs) > 2 and predicted.std() > 0 and measured.std() > 0
    return {
        "iterations": len(pairs),
        "mean_predicted": float(predicted.mean()),
        "mean_measured": float(measured.mean()),
        "measured_over_predicted": _ratio(measured.sum(), predicted.sum()),
        "correlation": float(np.corrcoef(predicted, measured)[0, 1]) if varies else None,
    }


def _ratio(one: float, other: float) -> float | None:
    return float(one / other) if other else None


def to_json(gains: Sequence[Gain]) -> list[dict[str, Any]]:
    """Return the gains of all measured iterations as JSON values."""
    return [
        {
            "iteration": gain.iteration,
            "old": gain.old,
            "gain": gain.measured.value,
            "interval_95": gain.measured.interval,
            "predicted": gain.predicted,
        }
        for gain in gains
    ]
