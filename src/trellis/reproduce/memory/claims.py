"""What memory is claimed to be worth, and whether the kept runs agree."""

from collections.abc import Mapping, Sequence

from trellis.reproduce.files import Record
from trellis.reproduce.page import Claim, judge

PROBES = {"repeat": 0.45, "t-maze": 0.65}
"""Largest return that a policy without memory may have. Guesses give 0.25 and 0.5."""
SOLVED = 0.95
"""Smallest return of a solved probe, and smallest score of CartPole and Pendulum."""
SMALL, LARGE = ("cartpole", "pendulum"), ("hopper", "walker2d")
OF_FULL, OVER_NONE = 0.7, 2.0
"""Smallest parts of the returns with full observations and without memory."""
SEEDS = 5
"""Number of seeds of each policy that a verdict needs; with fewer the claim is undecided."""

Means = Mapping[tuple[str, str], Record]
"""Measured rows by task and policy."""


def claims(rows: Sequence[Record]) -> list[Claim]:
    """Return the claims with their verdicts.

    Args:
        rows: Task, policy, returns of the seeds, their mean, and the score, if there is one.
    """
    found = {(row["task"], row["policy"]): row for row in rows}
    return [
        *(_probe(task, found) for task in PROBES),
        *(_small(task, found) for task in SMALL),
        *(claim for task in LARGE for claim in _large(task, found)),
    ]


def _mean(found: Means, task: str, policy: str) -> float | None:
    row = found.get((task, policy))
    return None if row is None else row["mean"]


def _seeds(found: Means, task: str, *policies: str) -> int:
    """Return the number of seeds that every one of the policies has."""
    rows = (found.get((task, policy)) for policy in policies)
    return min(0 if row is None else len(row["returns"]) for row in rows)


def _probe(task: str, found: Means) -> Claim:
    means = {policy: _mean(found, task, policy) for policy in ("gru", "lstm", "none")}
    cases = [
        mean < PROBES[task] if policy == "none" else mean >= SOLVED
        for policy, mean in means.items()
        if mean is not None
    ]
    shown = ", ".join(f"{policy} {mean:.2f}" for policy, mean in means.items() if mean is not None)
    seeds = _seeds(found, task, *means)
    return Claim(
        "",
        f"{task}: GRU and LSTM solve it, a policy without memory does not",
        judge(cases, enough_seeds=seeds >= SEEDS),
        f"{shown}; seeds: {seeds}" if shown else "no run",
        "[returns](#returns)",
    )


def _small(task: str, found: Means) -> Claim:
    row = found.get((task, "gru"))
    score = None if row is None else row["score"]
    seeds = _seeds(found, task, "gru", "full")
    return Claim(
        "",
        f"{task} without velocities: a GRU has a score of at least {SOLVED}",
        judge([] if score is None else [score >= SOLVED], enough_seeds=seeds >= SEEDS),
        "no run" if score is None else f"{score:.3f}; seeds: {seeds}",
        "[returns](#returns)",
    )


def _large(task: str, found: Means) -> list[Claim]:
    def claim(text: str, policy: str, least: float) -> Claim:
        gru, other = _mean(found, task, "gru"), _mean(found, task, policy)
        agrees, evidence = [], "no run"
        seeds = _seeds(found, task, "gru", policy)
        if gru is not None and other is not None:
            agrees = [gru >= least * other]
            evidence = f"{gru:,.0f} against {other:,.0f}; seeds: {seeds}"
        verdict = judge(agrees, enough_seeds=seeds >= SEEDS)
        return Claim(
            "", f"{task} without velocities: {text}", verdict, evidence, "[returns](#returns)"
        )

    return [
        claim("a GRU has 70% of full observations", "full", OF_FULL),
        claim("a GRU has twice as much as no memory", "none", OVER_NONE),
    ]
